#include "daemon/json/job_json.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/ascii.h>

#include "common/job/job_spec.h"
#include "common/text/json_depth.h"
#include "daemon/job_spec_messages.h"
#include "daemon/json/goodput_json.h"

namespace muster::daemon {
namespace {

using nlohmann::json;

json dependencies_to_json(const google::protobuf::RepeatedPtrField<v1::Dependency>& list) {
  json out = json::array();
  for (const v1::Dependency& dependency : list)
    out.push_back({{"job_id", dependency.job_id()},
                   {"kind", absl::AsciiStrToLower(v1::Dependency::Kind_Name(dependency.kind()))}});
  return out;
}

json spec_to_json(const v1::JobSpec& proto) {
  const JobSpec spec = job_spec_from_proto(proto);
  json out = {{"environment", json::object()},
              {"stack_traces",
               {{"collect", spec.stack_traces.collect},
                {"to_cloud", spec.stack_traces.to_cloud},
                {"interval_seconds", spec.stack_traces.interval_seconds}}}};
  for_each_job_field(
      [&](const JobField& field, auto member) { out[std::string(field.name)] = spec.*member; });
  // --json has the config as an object, and no gpus_per_rank.
  for (const char* key : {"train_config_json", "settings_json", "gpus_per_rank"}) out.erase(key);
  out["dependencies"] = dependencies_to_json(proto.dependencies());
  if (!spec.is_program()) {
    for (const char* key : {"command", "working_directory"}) out.erase(key);
  }
  // Values are often tokens and passwords, and this output ends up in logs.
  for (const auto& variable : spec.environment) out["environment"][variable.first] = "***";
  if (spec.train_config_json.empty()) return out;  // an entry of a list
  out["train_config"] = config_to_json(spec.train_config_json);
  return out;
}

json rank_status_to_json(const v1::RankStatus& rank) {
  return {{"rank", rank.rank()},
          {"worker", rank.worker()},
          {"pid", rank.pid()},
          {"phase", rank.phase()},
          {"step", rank.step()},
          {"loss", json_number(rank.loss())},
          {"grad_norm", json_number(rank.grad_norm())},
          {"step_seconds", json_number(rank.step_seconds())},
          {"tokens_per_second", json_number(rank.tokens_per_second())},
          {"mfu", json_number(rank.mfu())},
          {"checkpoint_step", rank.checkpoint_step()},
          {"checkpoints_saved", rank.checkpoints().saved()},
          {"checkpoints_failed", rank.checkpoints().failed()},
          {"checkpoint_stall_seconds", json_number(rank.checkpoints().stall_seconds())},
          {"last_progress_age_seconds", json_number(rank.last_progress_age_seconds())}};
}

json fault_to_json(const v1::Fault& fault) {
  return {{"rank", fault.rank()},           {"worker", fault.worker()},
          {"signal", fault.signal()},       {"exit_code", fault.exit_code()},
          {"last_step", fault.last_step()}, {"message", fault.message()},
          {"unix_ns", fault.unix_ns()},     {"kind", fault.kind()}};
}

json revision_to_json(const v1::Revision& revision) {
  return {{"revision", revision.revision()},
          {"change", revision.change()},
          {"unix_ns", revision.unix_ns()},
          {"pending", revision.pending()},
          {"rollback_steps", revision.rollback_steps()},
          {"undone", revision.undone()},
          {"end", revision.end()}};
}

// Returns the steps of the attempt that `next` repeated; -1: not known.
int64_t steps_repeated(const v1::JobAttempt& attempt, const v1::JobAttempt* next) {
  if (next == nullptr || attempt.last_step() < 0 || next->first_step() < 0) return -1;
  return std::max<int64_t>(attempt.last_step() - next->first_step(), 0);
}

// Returns the first attempt after number `index` that has begun a step, or null. Attempts are
// listed newest first.
const v1::JobAttempt* next_of(const v1::GetJobHistoryResponse& history, int index) {
  for (int next = index - 1; next >= 0; --next)
    if (history.attempts(next).first_step() >= 0) return &history.attempts(next);
  return nullptr;
}

}  // namespace

json json_number(double value) { return std::isfinite(value) ? json(value) : json(nullptr); }

json config_to_json(std::string_view train_config_json) {
  if (!is_shallow_json(train_config_json)) return nullptr;
  json config = json::parse(train_config_json, nullptr, /*allow_exceptions=*/false);
  return config.is_discarded() ? json(nullptr) : std::move(config);
}

int64_t steps_lost(const v1::GetJobHistoryResponse& history, int index) {
  return steps_repeated(history.attempts(index), next_of(history, index));
}

json job_to_json(const v1::Job& job) {
  json out = {{"id", job.id()},
              {"state", v1::JobState_Name(job.state())},
              {"reason", job.reason()},
              {"attempt", job.attempt()},
              {"exit_code", job.exit_code()},
              {"tokens_per_second", json_number(job.tokens_per_second())},
              {"spec", spec_to_json(job.spec())},
              {"nodes", job.nodes()},
              {"held", std::vector<std::string>(job.held().begin(), job.held().end())},
              {"placement", json::array()},
              {"ranks", json::array()},
              {"faults", json::array()},
              {"submitted_unix_ns", job.submitted_unix_ns()},
              {"started_unix_ns", job.started_unix_ns()},
              {"finished_unix_ns", job.finished_unix_ns()},
              {"incident", nullptr},
              {"goodput", goodput_to_json(job.goodput())},
              {"newest_step", job.newest_step()},
              {"waits_for", dependencies_to_json(job.waits_for())},
              {"revision", job.revision()},
              {"revisions", json::array()}};
  if (job.incident().id() != 0)
    out["incident"] = {{"id", job.incident().id()}, {"sentence", job.incident().sentence()}};
  for (const auto& place : job.placement()) {
    out["placement"].push_back(
        {{"rank", place.rank()}, {"worker", place.worker()}, {"local_rank", place.local_rank()}});
  }
  for (const auto& rank : job.ranks()) out["ranks"].push_back(rank_status_to_json(rank));
  for (const auto& fault : job.faults()) out["faults"].push_back(fault_to_json(fault));
  for (const auto& revision : job.revisions())
    out["revisions"].push_back(revision_to_json(revision));
  return out;
}

json worker_to_json(const v1::WorkerInfo& worker) {
  json out = {{"name", worker.name()},
              {"host", worker.host()},
              {"slots", worker.slots()},
              {"slots_used", worker.slots_used()},
              {"slots_held", worker.slots_held()},
              {"version", worker.version()},
              {"connected", worker.connected()},
              {"leaving", worker.leaving()},
              {"heartbeat_age_seconds", json_number(worker.heartbeat_age_seconds())},
              {"check_due", worker.check_due()},
              {"gpus", json::array()},
              {"gpus_used", worker.gpus_used()},
              {"no_gpus_because", worker.no_gpus_because()},
              {"switches", worker.switches()},
              {"domain", worker.domain()},
              {"labels", json::object()},
              {"taints", std::vector<std::string>(worker.taints().begin(), worker.taints().end())}};
  for (const auto& label : worker.labels()) out["labels"][label.first] = label.second;
  for (const v1::Gpu& gpu : worker.gpus()) {
    out["gpus"].push_back({{"index", gpu.index()},
                           {"uuid", gpu.uuid()},
                           {"name", gpu.name()},
                           {"memory_bytes", gpu.memory_bytes()},
                           {"numa_node", gpu.numa_node()}});
  }
  if (worker.has_exclusion()) {
    const v1::NodeExclusion& exclusion = worker.exclusion();
    out["exclusion"] = {{"cause", exclusion.cause()},
                        {"reason", exclusion.reason()},
                        {"since_unix_ns", exclusion.since_unix_ns()},
                        {"until_unix_ns", exclusion.until_unix_ns()},
                        {"times", exclusion.times()}};
  }
  if (worker.has_drain())
    out["drain"] = {{"unix_ns", worker.drain().unix_ns()}, {"reason", worker.drain().reason()}};
  if (worker.has_last_check()) {
    const v1::NodeCheck& check = worker.last_check();
    out["last_check"] = {{"passed", check.passed()},
                         {"unix_ns", check.unix_ns()},
                         {"seconds", json_number(check.seconds())},
                         {"sentence", check.sentence()},
                         {"details", check.details()}};
  }
  return out;
}

nlohmann::json history_to_json(const v1::GetJobHistoryResponse& history) {
  nlohmann::json out = {{"attempts", nlohmann::json::array()}, {"more", history.more()}};
  for (int i = 0; i < history.attempts_size(); ++i) {
    const v1::JobAttempt& attempt = history.attempts(i);
    out["attempts"].push_back({{"job_id", attempt.job_id()},
                               {"attempt", attempt.attempt()},
                               {"started_unix_ns", attempt.started_unix_ns()},
                               {"up_unix_ns", attempt.up_unix_ns()},
                               {"ended_unix_ns", attempt.ended_unix_ns()},
                               {"nodes", attempt.nodes()},
                               {"ranks", attempt.ranks()},
                               {"workers", attempt.workers()},
                               {"first_step", attempt.first_step()},
                               {"last_step", attempt.last_step()},
                               {"steps_lost", steps_lost(history, i)},
                               {"end", attempt.end()},
                               {"incident_id", attempt.incident_id()},
                               {"revision", attempt.revision()}});
  }
  return out;
}

}  // namespace muster::daemon
