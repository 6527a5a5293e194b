#include "coordinator/core/queue/job_update.h"

#include <algorithm>

#include <absl/strings/ascii.h>
#include <absl/strings/str_cat.h>

#include "coordinator/core/queue/validation.h"
#include "coordinator/core/recovery/revisions.h"

namespace muster::coordinator {
namespace {

// Enough for the keys of an update; the text is part of reasons, which are one line.
constexpr size_t kChangeBytesMax = 512;

// Returns the job's spec with the changed fields. The client does not have the values of
// the environment, so the request has only those that change.
JobSpec changed_spec(const Job& job, const JobUpdateRequested& event) {
  JobSpec spec = job.spec;
  const JobSpec& change = event.spec;
  if (!change.train_config_json.empty()) {
    spec.train_config_json = change.train_config_json;
    spec.smaller = change.smaller;
    spec.settings_json = change.settings_json;
    spec.steps = change.steps;
    spec.segment_nodes = change.segment_nodes;
    spec.restarts_max = change.restarts_max;
    spec.stack_traces = change.stack_traces;
    spec.planned_step_us = change.planned_step_us;
    spec.planned_communication_us = change.planned_communication_us;
    spec.planned_data_us = change.planned_data_us;
    spec.planned_checkpoint_us = change.planned_checkpoint_us;
    spec.planned_memory_bytes = change.planned_memory_bytes;
  }
  if (!change.command.empty()) spec.command = change.command;
  for (const auto& [name, value] : change.environment) spec.environment[name] = value;
  return spec;
}

// A job's variables may be secrets of its submitter, which another program could print.
absl::Status check_variables(const Job& job, const JobUpdateRequested& event) {
  if (event.spec.command.empty() && event.spec.environment.empty()) return absl::OkStatus();
  std::string missing, options;
  for (const auto& [name, value] : job.spec.environment) {
    if (event.spec.environment.contains(name)) continue;
    absl::StrAppend(&missing, missing.empty() ? "" : ", ", name);
    absl::StrAppend(&options, " --env ", name);
  }
  if (missing.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("spec.environment lacks ", missing,
                   ": an update of the program or of variables must give all variables of job ",
                   job.id.value(), " again, because their values may be secrets: add", options));
}

// Returns the steps with which the job would resume after its ranks have saved.
int64_t steps_to_resume(const Job& job) {
  int64_t steps = 0;
  if (!job.faults.empty())
    steps = std::max({steps, job.faults.back().checkpoint_step, job.faults.back().resumed_from});
  for (const RankState& rank : job.ranks)
    steps = std::max({steps, rank.step, rank.checkpoint_step});
  return steps;
}

// A job whose last step is behind it would end at its next start.
absl::Status check_steps(const Job& job, const JobSpec& updated) {
  const int64_t done = steps_to_resume(job);
  if (updated.steps == job.spec.steps || updated.steps < 1 || updated.steps > done)
    return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("steps is ", updated.steps, ", but job ", job.id.value(), " has completed ",
                   done, " steps: give more, or end it with muster cancel ", job.id.value()));
}

absl::Status check_request(const JobUpdateRequested& event, const InputLimits& limits) {
  if (auto status = check_request_id(event.request_id, limits); !status.ok()) return status;
  const bool has_controls = std::ranges::any_of(
      event.change, [](char c) { return absl::ascii_iscntrl(static_cast<unsigned char>(c)); });
  if (event.change.empty() || event.change.size() > kChangeBytesMax || has_controls) {
    return absl::InvalidArgumentError(absl::StrCat("change has ", event.change.size(),
                                                   " bytes: it must be 1 to ", kChangeBytesMax,
                                                   " bytes without control characters"));
  }
  if (event.rollback_steps < 0 || event.rollback_steps > kRollbackStepsMax) {
    return absl::InvalidArgumentError(absl::StrCat("rollback_steps is ", event.rollback_steps,
                                                   ": it must be 0 to ", kRollbackStepsMax));
  }
  return absl::OkStatus();
}

}  // namespace

bool has_update(const Job& job, const std::string& request_id) {
  if (request_id.empty()) return false;
  if (job.update && job.update->note.request_id == request_id) return true;
  return std::ranges::any_of(
      job.revisions, [&](const RevisionNote& note) { return note.request_id == request_id; });
}

absl::StatusOr<JobUpdate> update_of(const Job& job, const JobUpdateRequested& event,
                                    const InputLimits& limits) {
  const std::string name = absl::StrCat("job ", job.id.value());
  if (job.cancel_requested)
    return absl::FailedPreconditionError(absl::StrCat(name, " is being cancelled"));
  if (auto status = check_request(event, limits); !status.ok()) return status;
  if (job.update) {
    return absl::FailedPreconditionError(
        absl::StrCat(name, " has a pending update (", job.update->note.change,
                     "): wait until it is rolled in, or withdraw it with muster update --cancel ",
                     job.id.value()));
  }
  if (event.revision != job.revision) {
    return absl::AbortedError(absl::StrCat(name, " has revision ", job.revision,
                                           " now, and the update was made for revision ",
                                           event.revision, ": repeat the command"));
  }
  if (!job.exits.empty() && is_running(job.state)) {
    return absl::FailedPreconditionError(absl::StrCat(name, " is about to end: ", job.exits.size(),
                                                      " of ", job.ranks.size(),
                                                      " ranks have ended"));
  }
  const bool has_config = !event.spec.train_config_json.empty();
  if (has_config && job.spec.is_program()) {
    return absl::InvalidArgumentError(
        absl::StrCat("spec.train_config_json is given, but ", name,
                     " runs a program: give the new program behind --, or --env NAME=VALUE"));
  }
  if (!event.spec.command.empty() && !job.spec.is_program()) {
    return absl::InvalidArgumentError(
        absl::StrCat("spec.command is given, but ", name, " runs the trainer: give key=value"));
  }
  if (auto status = check_variables(job, event); !status.ok()) return status;
  JobUpdate update;
  update.spec = changed_spec(job, event);
  if (update.spec == job.spec) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " already has these values: ", event.change));
  }
  if (auto status = check_steps(job, update.spec); !status.ok()) return status;
  if (auto status = check_spec(update.spec, limits); !status.ok()) return status;
  update.note = {job.newest_revision + 1, event.change, event.request_id, event.unix_ns, "", false};
  update.rollback_steps = event.rollback_steps;
  update.time = event.time;
  if (event.time == UpdateTime::kAtCheckpoint) update.after_step = newest_checkpoint_of(job);
  return update;
}

}  // namespace muster::coordinator
