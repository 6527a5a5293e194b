#include "coordinator/shell/messages/node_messages.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <string>

#include "coordinator/shell/messages/sweep_messages.h"

namespace muster::coordinator {

void node_to_proto(const NodeRecord& node, v1::WorkerInfo& proto) {
  if (node.excluded) {
    v1::NodeExclusion& exclusion = *proto.mutable_exclusion();
    exclusion.set_cause(std::string(rule_of(node.suspicion).name));
    exclusion.set_reason(node.reason);
    exclusion.set_since_unix_ns(node.since_unix_ns);
    exclusion.set_until_unix_ns(node.until_unix_ns);
    exclusion.set_times(node.times);
    exclusion.set_drain_unix_ns(node.drain_unix_ns);
  }
  if (node.drain_unix_ns != 0) {
    proto.mutable_drain()->set_unix_ns(node.drain_unix_ns);
    proto.mutable_drain()->set_reason(node.drain_reason);
  }
  proto.set_check_due(node.check_due);
  if (node.checked_unix_ns == 0) return;
  v1::NodeCheck& check = *proto.mutable_last_check();
  check.set_passed(node.check.passed);
  check.set_unix_ns(node.checked_unix_ns);
  check.set_seconds(node.check.seconds);
  check.set_sentence(node.check.sentence);
  check.set_details(node.check.details);
}

v1::WorkerInfo absent_worker_to_proto(const NodeRecord& node) {
  v1::WorkerInfo proto;
  proto.set_name(node.worker.value());
  node_to_proto(node, proto);
  return proto;
}

NodeChecked node_checked_from_proto(const v1::NodeChecked& proto) {
  NodeChecked event;
  event.check = proto.check_id();
  event.result = {proto.passed(),
                  std::isfinite(proto.seconds()) ? std::max(0.0, proto.seconds()) : 0,
                  proto.sentence(), proto.details()};
  if (proto.has_deep()) event.deep = figures_from_proto(proto.deep());
  return event;
}

NodeExcludeRequested exclusion_from_proto(const v1::ExcludeWorkerRequest& proto) {
  NodeExcludeRequested event;
  event.worker = WorkerName(proto.worker());
  event.reason = proto.reason();
  event.evacuate = proto.evacuate();
  event.drain_unix_ns = proto.drain_unix_ns();
  event.late = proto.late();
  constexpr int64_t kSecondsMax = int64_t{1} << 32;  // beyond the core's bound, far from overflow
  if (proto.seconds() != 0)
    event.time = std::chrono::seconds(std::clamp<int64_t>(proto.seconds(), 0, kSecondsMax));
  return event;
}

}  // namespace muster::coordinator
