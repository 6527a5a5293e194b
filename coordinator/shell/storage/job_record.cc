#include "coordinator/shell/storage/job_record.h"

#include <algorithm>
#include <optional>

#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

#include "coordinator/core/records/sizes.h"
#include "coordinator/shell/messages/account_messages.h"
#include "coordinator/shell/storage/revision_record.h"

namespace muster::coordinator {
namespace {

using nlohmann::json;

json to_json(const WorkerName& worker) { return worker.value(); }
WorkerName worker_from(const json& j) { return WorkerName(j.get<std::string>()); }

json to_json(const RankPlacement& rank) {
  return {{"rank", rank.rank.value()},
          {"worker", rank.worker.value()},
          {"local_rank", rank.local_rank},
          {"incarnation", rank.incarnation.value()}};
}

RankPlacement placement_from(const json& j) {
  return {Rank(j.value("rank", 0)), WorkerName(j.value("worker", std::string())),
          j.value("local_rank", 0), Incarnation(j.value("incarnation", uint64_t{0}))};
}

// Returns the placement of each node's first rank if these determine the placement of all ranks, as
// after every start. The record is then smaller by the ranks per node.
std::optional<std::vector<RankPlacement>> whole_nodes_of(const Job& job) {
  const auto per_node = static_cast<size_t>(job.spec.ranks_per_node);
  if (job.spec.ranks_per_node < 1 || job.placement.size() % per_node != 0) return std::nullopt;
  std::vector<RankPlacement> nodes;
  for (size_t i = 0; i < job.placement.size(); ++i) {
    const auto local = static_cast<int32_t>(i % per_node);
    if (local == 0) nodes.push_back(job.placement[i]);
    const RankPlacement& first = nodes.back();
    const RankPlacement expected{Rank(static_cast<int32_t>(i)), first.worker, local,
                                 first.incarnation};
    if (job.placement[i] != expected) return std::nullopt;
  }
  return nodes;
}

// Undoes whole_nodes_of().
void fill_nodes(const std::vector<RankPlacement>& nodes, Job& job) {
  for (const RankPlacement& first : nodes) {
    for (int32_t local = 0; local < job.spec.ranks_per_node; ++local) {
      const Rank rank(static_cast<int32_t>(job.placement.size()));
      job.placement.push_back({rank, first.worker, local, first.incarnation});
    }
  }
}

json to_json(const Fault& fault) {
  json without_link = json::array();
  for (const WorkerName& node : fault.nodes_without_link) without_link.push_back(node.value());
  return {{"rank", fault.rank.value()},
          {"worker", fault.worker.value()},
          {"signal", fault.signal},
          {"exit_code", fault.exit_code},
          {"last_step", fault.last_step},
          {"message", fault.message},
          {"unix_ns", fault.unix_ns},
          {"of_program", fault.of_program},
          {"node_unfit", fault.node_unfit},
          {"has_elsewhere", fault.has_elsewhere},
          {"kind", std::string(kIncidentKindNames[static_cast<size_t>(fault.kind)])},
          {"checkpoint_step", fault.checkpoint_step},
          {"went_on_from", fault.resumed_from},
          {"job_step", fault.job_step},
          {"productive_ns", fault.productive.count()},
          {"error", fault.error},
          {"planned", fault.is_planned},
          {"family", fault.family},
          {"place", fault.place},
          {"peer", fault.peer.value()},
          {"revision", fault.revision},
          {"for_update", fault.for_update},
          {"unreported", fault.is_unreported},
          {"for_time_limit", fault.for_time_limit},
          {"nodes_without_link", std::move(without_link)}};
}

Fault fault_from(const json& j) {
  Fault fault;
  fault.rank = Rank(j.value("rank", -1));
  fault.worker = WorkerName(j.value("worker", std::string()));
  fault.signal = j.value("signal", 0);
  fault.exit_code = j.value("exit_code", 0);
  fault.last_step = j.value("last_step", int64_t{-1});
  fault.message = j.value("message", std::string());
  fault.unix_ns = j.value("unix_ns", int64_t{0});
  fault.of_program = j.value("of_program", false);
  fault.node_unfit = j.value("node_unfit", false);
  fault.has_elsewhere = j.value("has_elsewhere", false);
  // An unknown name, from an earlier or later version, counts as kRankDied.
  const auto kind = std::find(kIncidentKindNames.begin(), kIncidentKindNames.end(),
                              j.value("kind", std::string()));
  if (kind != kIncidentKindNames.end())
    fault.kind = static_cast<IncidentKind>(kind - kIncidentKindNames.begin());
  fault.checkpoint_step = j.value("checkpoint_step", int64_t{-1});
  fault.resumed_from = j.value("went_on_from", int64_t{-1});
  fault.job_step = j.value("job_step", int64_t{-1});
  fault.productive = Duration(j.value("productive_ns", int64_t{0}));
  fault.error = j.value("error", std::string());
  fault.is_planned = j.value("planned", false);
  fault.family = j.value("family", std::string());
  fault.place = j.value("place", std::string());
  fault.peer = WorkerName(j.value("peer", std::string()));
  fault.revision = j.value("revision", 1);
  fault.for_update = j.value("for_update", false);
  fault.is_unreported = j.value("unreported", false);
  fault.for_time_limit = j.value("for_time_limit", false);
  for (const json& node : j.value("nodes_without_link", json::array()))
    fault.nodes_without_link.push_back(worker_from(node));
  return fault;
}

json to_json(const std::map<Cause, RestartsUsed>& causes) {
  json list = json::object();
  for (const auto& [cause, used] : causes) {
    list[std::string(rule_of(cause).name)] = {{"count", used.count},
                                              {"checkpoint_step", used.checkpoint_step},
                                              {"job_step", used.job_step},
                                              {"productive_ns", used.productive.count()}};
  }
  return list;
}

std::map<Cause, RestartsUsed> restarts_used_from(const json& j) {
  std::map<Cause, RestartsUsed> causes;
  for (size_t i = 0; i < kCauses; ++i) {
    const auto found = j.find(std::string(kCauseRules[i].name));
    if (found == j.end()) continue;
    causes[static_cast<Cause>(i)] = {
        found->value("count", 0), found->value("checkpoint_step", int64_t{-1}),
        found->value("job_step", int64_t{-1}), Duration(found->value("productive_ns", int64_t{0}))};
  }
  return causes;
}

json to_json(const RankExit& exit) {
  return {{"rank", exit.rank.value()},
          {"exit_code", exit.exit_code},
          {"signal", exit.signal},
          {"last_step", exit.last_step},
          {"detail", exit.detail},
          {"out_of_memory", exit.cause == ExitCause::kOutOfMemory},
          {"of_program", exit.of_program},
          {"told_to_stop", exit.stop_ordered},
          {"output_incomplete", exit.output_incomplete},
          {"lost_link", exit.lost_link},
          {"link_is_down", exit.link_is_down},
          {"gpu_fault", exit.cause == ExitCause::kGpuFault},
          {"node_fault", exit.cause == ExitCause::kNodeFault},
          {"worker_stalled", exit.cause == ExitCause::kWorkerStalled}};
}

RankExit exit_from(const json& j) {
  return {Rank(j.value("rank", 0)),
          j.value("exit_code", 0),
          j.value("signal", 0),
          j.value("last_step", int64_t{-1}),
          j.value("detail", std::string()),
          j.value("out_of_memory", false)    ? ExitCause::kOutOfMemory
          : j.value("gpu_fault", false)      ? ExitCause::kGpuFault
          : j.value("node_fault", false)     ? ExitCause::kNodeFault
          : j.value("worker_stalled", false) ? ExitCause::kWorkerStalled
                                             : ExitCause::kUnknown,
          j.value("of_program", false),
          j.value("told_to_stop", false),
          j.value("output_incomplete", false),
          j.value("lost_link", std::string()),
          j.value("link_is_down", false)};
}

json to_json(const SlowNode& node) {
  return {{"worker", node.worker.value()},     {"incident", node.incident.value()},
          {"unix_ns", node.unix_ns},           {"only_reported", node.is_only_reported},
          {"revision", node.revision},         {"nodes", node.nodes},
          {"step_seconds", node.step_seconds}, {"excess_seconds", node.excess_seconds},
          {"left_unix_ns", node.left_unix_ns}, {"measured", node.is_measured},
          {"in_vain", node.was_in_vain}};
}

SlowNode slow_node_from(const json& j) {
  return {WorkerName(j.value("worker", std::string())),
          IncidentId(j.value("incident", uint64_t{0})),
          j.value("unix_ns", int64_t{0}),
          j.value("only_reported", false),
          j.value("revision", 1),
          j.value("nodes", 0),
          j.value("step_seconds", 0.0),
          j.value("excess_seconds", 0.0),
          j.value("left_unix_ns", int64_t{0}),
          j.value("measured", false),
          j.value("in_vain", false)};
}

json to_json(const LogLeader& leader) {
  return {{"first", leader.first.value()}, {"coordinator", leader.coordinator}};
}

LogLeader log_leader_from(const json& j) {
  return {Attempt(j.value("first", 0U)), j.value("coordinator", std::string())};
}

json to_json(const IncidentNote& incident) {
  return {{"id", incident.id.value()}, {"sentence", incident.sentence}};
}

IncidentNote incident_from(const json& j) {
  return {IncidentId(j.value("id", uint64_t{0})), j.value("sentence", std::string())};
}

template <class T>
json list_to_json(const std::vector<T>& items) {
  json list = json::array();
  for (const T& item : items) list.push_back(to_json(item));
  return list;
}

template <class T, class F>
std::vector<T> list_from(const json& j, const char* key, F from) {
  std::vector<T> items;
  if (const auto it = j.find(key); it != j.end()) {
    for (const json& item : *it) items.push_back(from(item));
  }
  return items;
}

absl::StatusOr<JobState> state_from(const std::string& name) {
  for (size_t i = 0; i < kJobStateNames.size(); ++i) {
    if (kJobStateNames[i] == name) return static_cast<JobState>(i);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("state is \"", name, "\", which this version does not support"));
}

}  // namespace

std::string job_to_record(const Job& job) {
  json record = {{"id", job.id.value()},
                 {"spec", spec_to_json(job.spec)},
                 {"state", std::string(job_state_name(job.state))},
                 {"reason", job.reason},
                 {"attempt", job.attempt.value()},
                 {"cancel_requested", job.cancel_requested},
                 {"faults", list_to_json(job.faults)},
                 {"submitted_unix_ns", job.submitted_unix_ns},
                 {"first_started_unix_ns", job.first_started_unix_ns},
                 {"started_unix_ns", job.started_unix_ns},
                 {"up_unix_ns", job.up_unix_ns},
                 {"finished_unix_ns", job.finished_unix_ns},
                 {"exit_code", job.exit_code},
                 {"futile", job.is_futile},
                 {"rendezvous_address", job.rendezvous_address},
                 {"program_port", job.program_port},
                 {"restarts", job.restarts},
                 {"restarts_used", to_json(job.restarts_used)},
                 {"incident", to_json(job.incident)},
                 {"recovering", job.recovering.value()},
                 {"account", account_to_json(job.account)},
                 {"stop_grace_ns", job.stop_grace.count()},
                 {"previous_nodes", list_to_json(job.previous_nodes)},
                 {"trained_on", list_to_json(job.trained_on)},
                 {"not_before_unix_ns", job.not_before_unix_ns},
                 {"resizes", job.resizes},
                 {"ended_without_proof", job.ended_without_proof},
                 {"slow_nodes", list_to_json(job.slow_nodes)},
                 {"waits_for", dependencies_to_json(job.waits_for)}};
  if (!job.log_leaders.empty()) record["log_leaders"] = list_to_json(job.log_leaders);
  add_revisions(job, record);
  if (auto nodes = whole_nodes_of(job))
    record["nodes"] = list_to_json(*nodes);
  else
    record["placement"] = list_to_json(job.placement);
  // A worker's text may contain any bytes; invalid UTF-8 is replaced and not refused.
  return record.dump(-1, ' ', false, json::error_handler_t::replace);
}

absl::StatusOr<Job> job_from_record(std::string_view record) try {
  const json j = json::parse(record);
  Job job;
  job.id = JobId(j.value("id", uint64_t{0}));
  job.spec = spec_from_json(j.value("spec", json::object()));
  auto state = state_from(j.value("state", std::string()));
  if (!state.ok()) return state.status();
  job.state = *state;
  job.reason = j.value("reason", std::string());
  job.attempt = Attempt(j.value("attempt", uint32_t{0}));
  job.cancel_requested = j.value("cancel_requested", false);
  job.placement = list_from<RankPlacement>(j, "placement", placement_from);
  if (job.placement.empty() && job.spec.ranks_per_node > 0)
    fill_nodes(list_from<RankPlacement>(j, "nodes", placement_from), job);
  job.faults = list_from<Fault>(j, "faults", fault_from);
  job.submitted_unix_ns = j.value("submitted_unix_ns", int64_t{0});
  job.started_unix_ns = j.value("started_unix_ns", int64_t{0});
  // Records of earlier versions have the current attempt's start only.
  job.first_started_unix_ns = j.value("first_started_unix_ns", job.started_unix_ns);
  job.up_unix_ns = j.value("up_unix_ns", int64_t{0});
  job.finished_unix_ns = j.value("finished_unix_ns", int64_t{0});
  job.exit_code = j.value("exit_code", 0);
  job.is_futile = j.value("futile", false);
  job.rendezvous_address = j.value("rendezvous_address", std::string());
  job.program_port = j.value("program_port", 0);
  job.exits = list_from<RankExit>(j, "exits", exit_from);
  job.restarts = j.value("restarts", 0);
  job.restarts_used = restarts_used_from(j.value("restarts_used", json::object()));
  job.incident = incident_from(j.value("incident", json::object()));
  job.recovering = IncidentId(j.value("recovering", uint64_t{0}));
  job.account = account_from_json(j.value("account", json::object()));
  job.stop_grace = Duration(j.value("stop_grace_ns", int64_t{0}));
  job.previous_nodes = list_from<WorkerName>(j, "previous_nodes", worker_from);
  job.trained_on = list_from<WorkerName>(j, "trained_on", worker_from);
  job.not_before_unix_ns = j.value("not_before_unix_ns", int64_t{0});
  job.resizes = j.value("resizes", 0);
  job.ended_without_proof = j.value("ended_without_proof", false);
  job.slow_nodes = list_from<SlowNode>(j, "slow_nodes", slow_node_from);
  job.waits_for = dependencies_from_json(j.value("waits_for", json::array()));
  job.log_leaders = list_from<LogLeader>(j, "log_leaders", log_leader_from);
  read_revisions(j, job);
  if (absl::Status status = check_consistency(job); !status.ok()) return status;
  return job;
} catch (const json::exception& e) {
  return absl::InvalidArgumentError(e.what());
}

std::string exit_to_record(const RankExit& exit) {
  return to_json(exit).dump(-1, ' ', false, json::error_handler_t::replace);
}

absl::StatusOr<RankExit> exit_from_record(std::string_view record) try {
  return exit_from(json::parse(record));
} catch (const json::exception& e) {
  return absl::InvalidArgumentError(e.what());
}

// The values of a record must agree, because ranks are used as indices of arrays.
absl::Status check_consistency(const Job& job) {
  const auto ranks = std::ssize(job.placement);
  if (job.id == JobId(0)) return absl::InvalidArgumentError("id is missing");
  if (job.spec.ranks_per_node < 1) return absl::InvalidArgumentError("a node has no ranks");
  const int32_t nodes = nodes_now(job);
  const bool whole_nodes = ranks == int64_t{nodes} * job.spec.ranks_per_node;
  if (is_live(job.state) && (!whole_nodes || nodes < 1 || largest_size(job.spec, nodes) != nodes)) {
    return absl::InvalidArgumentError(
        absl::StrCat("it has ", ranks, " placed ranks, not ", job.spec.world_size()));
  }
  for (int64_t i = 0; i < ranks; ++i) {
    if (job.placement[static_cast<size_t>(i)].rank.value() != i) {
      return absl::InvalidArgumentError(absl::StrCat("placement ", i, " is of another rank"));
    }
  }
  for (const RankExit& exit : job.exits) {
    if (exit.rank.value() < 0 || exit.rank.value() >= ranks) {
      return absl::InvalidArgumentError(
          absl::StrCat("rank ", exit.rank.value(), " exited but was not placed"));
    }
  }
  if (job.state == JobState::kRestarting && job.faults.empty() && !job.cancel_requested) {
    return absl::InvalidArgumentError("it is RESTARTING without a fault");
  }
  return absl::OkStatus();
}

}  // namespace muster::coordinator
