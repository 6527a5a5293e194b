// muster update: changes the config or the program of a job that has not ended.
#include <cstdlib>
#include <filesystem>

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>

#include "cli/client.h"
#include "cli/command.h"
#include "cli/jobs/job_arguments.h"
#include "cli/jobs/job_view.h"
#include "cli/jobs/rank_variables.h"
#include "cli/jobs/update_view.h"
#include "cli/run/pasted_command.h"
#include "cli/run/preflight.h"
#include "cli/terminal/terminal.h"
#include "daemon/help.h"
#include "daemon/json/job_json.h"
#include "daemon/process.h"
#include "jobspec/changed_job.h"

namespace muster::cli {
namespace {

// Long enough for a config that diverges or needs more memory than there is; short compared with
// the usual time between two faults.
constexpr int64_t kRollbackStepsDefault = 50;
constexpr int64_t kRollbackStepsMost = 1'000'000;

struct UpdateOptions {
  uint64_t job = 0;
  std::vector<std::string> overrides;
  std::vector<std::string> environment;
  std::string program;
  int64_t rollback_steps = kRollbackStepsDefault;
  bool now = false;
  bool at_checkpoint = false;
  bool cancel = false;
  bool no_check = false;
  CoordinatorTarget coordinator;
  bool json = false;
};

absl::Status check_options(const UpdateOptions& options) {
  const bool has_change =
      !options.overrides.empty() || !options.environment.empty() || !options.program.empty();
  if (options.cancel && has_change)
    return absl::InvalidArgumentError("--cancel withdraws a pending update: give no change");
  if (!options.cancel && !has_change) {
    return absl::InvalidArgumentError(
        "nothing to change: give key=value for a config, -- COMMAND ARGS for a program, or --env "
        "NAME=VALUE");
  }
  if (!options.overrides.empty() && !options.program.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        options.overrides.front(),
        ": key=value is for a config, and -- COMMAND ARGS for a program; give one of them"));
  }
  return absl::OkStatus();
}

absl::Status change_config(const UpdateOptions& options, const v1::Job& job, v1::JobSpec& spec) {
  if (job.spec().command_size() > 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.overrides.front(), ": job ", job.id(),
                     " runs a program, which has no keys: give the program with its new arguments, "
                     "muster update ",
                     job.id(), " -- COMMAND ARGS"));
  }
  jobspec::ChangeOptions change;
  std::error_code error;
  change.working_directory = std::filesystem::current_path(error).string();
  if (const char* home = std::getenv("HOME"); home != nullptr) change.home = home;
  change.shipped_base = shipped_base_yml().value_or("");
  auto changed = jobspec::change_job(job.spec(), options.overrides, change);
  if (!changed.ok()) return changed.status();
  for (const std::string& warning : changed->warnings) warn(warning);
  if (!options.no_check)
    if (auto status = check_all_sizes(changed->spec); !status.ok()) return status;
  spec = std::move(changed->spec);
  return absl::OkStatus();
}

// Fills in the changed fields of the job's spec.
absl::Status change_spec(const UpdateOptions& options, const v1::Job& job, v1::JobSpec& spec) {
  if (!options.overrides.empty()) {
    if (auto status = change_config(options, job, spec); !status.ok()) return status;
  }
  if (!options.program.empty()) {
    if (job.spec().command_size() == 0) {
      return absl::InvalidArgumentError(absl::StrCat("job ", job.id(),
                                                     " runs muster-trainer: change its config with "
                                                     "key=value instead of a program behind --"));
    }
    const auto words = words_of_program(options.program);
    if (!words.ok()) return words.status();
    spec.mutable_command()->Assign(words->begin(), words->end());
  }
  const auto variables = rank_variables(options.environment);
  if (!variables.ok()) return variables.status();
  spec.clear_environment();
  spec.mutable_environment()->insert(variables->begin(), variables->end());
  return absl::OkStatus();
}

absl::StatusOr<v1::UpdateJobRequest> request_of(const UpdateOptions& options, Client& client) {
  v1::UpdateJobRequest request;
  request.set_job_id(options.job);
  request.set_withdraw(options.cancel);
  const auto job = client.get_job(options.job);
  if (!job.ok()) return job.status();
  if (is_terminal_state(job->state())) {
    return absl::FailedPreconditionError(
        absl::StrCat("job ", job->id(), " has ended: it is ", v1::JobState_Name(job->state())));
  }
  if (options.cancel) {
    // The repeated call of a lost answer withdraws no other update.
    for (const v1::Revision& revision : job->revisions())
      if (revision.pending()) request.set_revision(revision.revision());
    return request;
  }
  if (auto status = change_spec(options, *job, *request.mutable_spec()); !status.ok())
    return status;
  const auto drawn = daemon::draw_random_id();
  if (!drawn.ok()) return drawn.status();
  request.set_request_id(absl::StrCat(absl::Hex(*drawn)));
  // A coordinator of an earlier version sends no revision, and refuses the call.
  request.set_revision(job->revision());
  request.set_change(change_text(options.overrides, options.environment,
                                 options.program.empty() ? v1::JobSpec() : request.spec()));
  request.set_rollback_steps(options.rollback_steps);
  request.set_time(options.now             ? v1::NOW
                   : options.at_checkpoint ? v1::AT_CHECKPOINT
                                           : v1::AFTER_SAVE);
  return request;
}

int update(const UpdateOptions& options) {
  if (auto status = check_options(options); !status.ok()) return fail(status);
  Client client(options.coordinator);
  const auto request = request_of(options, client);
  if (!request.ok()) return fail(request.status());
  absl::StatusOr<v1::Job> job = absl::UnknownError("");
  const absl::Status status = with_reconnection(
      client,
      [&] {
        job = client.update_job(*request);
        return job.status();
      },
      [](const absl::Status& loss) { warn(loss_text(loss)); });
  if (!status.ok()) return fail(status);
  return print_result(options.json ? daemon::job_to_json(*job).dump(2) + "\n" : update_text(*job));
}

}  // namespace

void declare_update(CLI::App& app, Action& action) {
  auto options = std::make_shared<UpdateOptions>();
  CLI::App* command = app.add_subcommand(
      "update", "Change the config or the program of a running job; it keeps its nodes");
  add_job_argument(*command, options->job);
  command
      ->add_option(kOverrides, options->overrides,
                   "For a job with a config: the keys to change (`muster config show` lists keys)")
      ->type_name("key=value");
  command->add_option(kProgram, options->program)->group("");
  daemon::add_list(*command, "--env", options->environment, "NAME[=VALUE]",
                   "Environment variable to set for every rank; may be repeated. NAME alone passes "
                   "your own value");
  daemon::add_count(*command, "--rollback-steps", options->rollback_steps,
                    "Return to the former revision if the new one fails before it has completed "
                    "this number of steps; 0: never",
                    0, kRollbackStepsMost)
      ->capture_default_str();
  CLI::Option* now = command->add_flag(
      "--now", options->now, "Restart at once from the newest checkpoint, without another save");
  command
      ->add_flag("--at-checkpoint", options->at_checkpoint,
                 "Wait for the next checkpoint that the job saves by itself: for programs that do "
                 "not save at SIGTERM")
      ->excludes(now);
  command->add_flag("--cancel", options->cancel, "Withdraw an update that no attempt has yet");
  command->add_flag(
      "--no-check", options->no_check,
      "Skip the check of data and checkpoints: they are not visible from this machine");
  add_coordinator_option(*command, options->coordinator);
  add_json_option(*command, options->json);
  command->footer(
      "The ranks save a checkpoint and leave, and the next attempt starts with the change on the "
      "same nodes.\n"
      "\n"
      "Examples:\n"
      "  muster update 7 learning_rate=1e-4 checkpoint_period=500\n"
      "  muster update 7 --rollback-steps 200 not_finite_policy=rollback\n"
      "  muster update 8 -- python3 train_v2.py --lr 1e-4       # docs/recovery.md#change-a-job\n"
      "  muster update 8 --at-checkpoint --env NCCL_DEBUG=INFO\n"
      "  muster update 8 --cancel\n"
      "  muster status 7 && muster history 7      # its revisions, and which attempt had which");
  on_call(*command, action, options, update);
}

}  // namespace muster::cli
