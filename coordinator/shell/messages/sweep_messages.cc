#include "coordinator/shell/messages/sweep_messages.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/ascii.h>

namespace muster::coordinator {
namespace {

constexpr size_t kNameBytesMax = 32;
constexpr size_t kUnitBytesMax = 16;
constexpr size_t kKindBytesMax = 256;

bool is_name(const std::string& name) {
  return !name.empty() && name.size() <= kNameBytesMax && std::ranges::all_of(name, [](char c) {
    return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '_';
  });
}

v1::NodeOutcome outcome_to_proto(NodeOutcome outcome) {
  switch (outcome) {
    case NodeOutcome::kChecking:
      return v1::NODE_CHECKING;
    case NodeOutcome::kPassed:
      return v1::NODE_PASSED;
    case NodeOutcome::kFailed:
      return v1::NODE_FAILED;
    case NodeOutcome::kSkipped:
      return v1::NODE_SKIPPED;
  }
  return v1::NODE_OUTCOME_UNSPECIFIED;
}

}  // namespace

void check_order_to_proto(const SendCheckNode& order, v1::CheckNode& proto) {
  proto.set_check_id(order.check);
  if (!order.deep) return;
  v1::DeepCheckOrder& deep = *proto.mutable_deep();
  deep.set_seconds(order.deep->seconds);
  deep.set_deadline_ms(
      std::chrono::duration_cast<std::chrono::milliseconds>(order.deep->deadline).count());
  deep.set_storage_folder(order.deep->storage_folder);
  deep.set_group_rank(order.deep->seat.rank);
  deep.set_group_size(order.deep->seat.size);
  deep.set_rendezvous_address(order.deep->seat.rendezvous_address);
  deep.set_group_id(order.deep->seat.id);
}

DeepCheckFigures figures_from_proto(const v1::DeepCheckResult& proto) {
  DeepCheckFigures figures;
  figures.kind = proto.kind().substr(0, kKindBytesMax);
  figures.stopped = proto.stopped();
  figures.wrong = proto.wrong();
  for (const v1::Measurement& one : proto.measurements()) {
    const bool is_valid = is_name(one.name()) && one.unit().size() <= kUnitBytesMax &&
                          std::isfinite(one.value()) && one.value() >= 0;
    if (is_valid && figures.measurements.size() < kMeasurementsMax)
      figures.measurements.push_back({one.name(), one.value(), one.unit()});
  }
  return figures;
}

NodeSweepRequested sweep_request_from_proto(const v1::CheckNodesRequest& proto) {
  NodeSweepRequested event;
  for (const std::string& name : proto.workers()) event.workers.emplace_back(name);
  event.seconds = proto.seconds();
  event.storage_folder = proto.storage_folder();
  event.links = !proto.no_links();
  return event;
}

v1::DeepCheck deep_check_to_proto(const DeepCheckRecord& record) {
  v1::DeepCheck proto;
  proto.set_unix_ns(record.unix_ns);
  proto.set_passed(record.passed);
  proto.set_seconds(record.seconds);
  proto.set_sentence(record.sentence);
  proto.set_kind(record.kind);
  for (const Measurement& one : record.measurements) {
    v1::Measurement& added = *proto.add_measurements();
    added.set_name(one.name);
    added.set_value(one.value);
    added.set_unit(one.unit);
  }
  return proto;
}

v1::NodeSweep sweep_to_proto(const Sweep& sweep) {
  v1::NodeSweep proto;
  proto.set_id(sweep.id());
  proto.set_running(!sweep.is_over());
  proto.set_started_unix_ns(sweep.started_unix_ns());
  proto.set_ended_unix_ns(sweep.ended_unix_ns());
  proto.set_scheduled(sweep.request().scheduled);
  proto.set_stage(sweep.stage_text());
  proto.set_node_count(static_cast<int32_t>(sweep.nodes().size()));
  std::vector<std::pair<const WorkerName*, const SweptNode*>> nodes;
  for (const auto& [name, node] : sweep.nodes()) nodes.emplace_back(&name, &node);
  std::ranges::stable_sort(nodes, {}, [](const auto& node) {
    const NodeOutcome outcome = node.second->outcome;
    return outcome == NodeOutcome::kFailed ? 0 : outcome == NodeOutcome::kPassed ? 2 : 1;
  });
  if (nodes.size() > kSweptNodesListed) nodes.resize(kSweptNodesListed);
  for (const auto& [name, node] : nodes) {
    v1::SweptNode& added = *proto.add_nodes();
    added.set_worker(name->value());
    added.set_outcome(outcome_to_proto(node->outcome));
    added.set_sentence(node->sentence);
    if (node->record) *added.mutable_check() = deep_check_to_proto(*node->record);
  }
  for (const std::string& finding : sweep.findings()) proto.add_findings(finding);
  return proto;
}

}  // namespace muster::coordinator
