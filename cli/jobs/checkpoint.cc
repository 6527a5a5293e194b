// muster checkpoint: a running job saves a checkpoint now and continues to train.
#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

#include "cli/client.h"
#include "cli/command.h"
#include "cli/jobs/checkpoint_outcome.h"
#include "cli/jobs/job_view.h"
#include "cli/terminal/terminal.h"
#include "common/time/time.h"
#include "daemon/help.h"

namespace muster::cli {
namespace {

// Poll interval; a worker reports its ranks once a second.
constexpr auto kPollPeriod = std::chrono::milliseconds(200);
constexpr int64_t kTimeoutSecondsMax = 86'400;

struct CheckpointOptions {
  uint64_t job = 0;
  bool no_wait = false;
  int64_t timeout_seconds = 1800;
  CoordinatorTarget coordinator;
  bool json = false;
};

// Exit code if it cannot be known whether the checkpoint was saved.
constexpr int kNotKnown = 3;

uint64_t failed_saves(const v1::Job& job) {
  return job.ranks_size() > 0 ? job.ranks(0).checkpoints().failed() : 0;
}

// Returns the job's current outcome, and writes the job to `job`.
absl::StatusOr<std::optional<int64_t>> poll_outcome(Client& client,
                                                    const CheckpointRequest& request,
                                                    v1::Job& job) {
  auto now = client.get_job(job.id());
  if (!now.ok()) return now.status();
  job = *std::move(now);
  v1::GetJobHistoryResponse attempts;
  if (needs_history(job, request)) {
    auto history = client.job_history(job.id(), job.attempt() - request.attempt);
    if (!history.ok()) return history.status();
    attempts = *std::move(history);
  }
  return checkpoint_outcome(job, request, attempts);
}

// Waits until the outcome is known, for at most `timeout`.
absl::StatusOr<int64_t> wait_for_outcome(Client& client, const CheckpointRequest& request,
                                         v1::Job& job, std::chrono::seconds timeout) {
  const Instant give_up = monotonic_now() + timeout;
  std::optional<int64_t> saved;
  bool warned = false;
  const absl::Status status = with_reconnection(
      client,
      [&]() -> absl::Status {
        while (monotonic_now() < give_up) {
          std::this_thread::sleep_for(kPollPeriod);
          const auto outcome = poll_outcome(client, request, job);
          if (!outcome.ok()) return outcome.status();
          saved = *outcome;
          if (saved) return absl::OkStatus();
          if (is_running_state(job.state()) || std::exchange(warned, true)) continue;
          warn(absl::StrCat("job ", job.id(), " was stopped (", job.reason(),
                            "); the command waits for its next attempt, whose first step shows "
                            "whether the checkpoint was saved"));
        }
        return absl::UnknownError(absl::StrCat(
            "it is not known whether job ", job.id(), " saves a checkpoint after step ",
            request.after_step, ": none was reported within --timeout=", timeout.count(),
            " seconds; the job is ", v1::JobState_Name(job.state()), " (", job.reason(), ")"));
      },
      [](const absl::Status& loss) { warn(loss_text(loss)); });
  if (!status.ok()) return status;
  return *saved;
}

int checkpoint(const CheckpointOptions& options) {
  Client client(options.coordinator);
  const auto answer = client.checkpoint_job(options.job);
  if (!answer.ok()) return fail(answer.status());
  v1::Job job = answer->job();
  const CheckpointRequest request{job.attempt(), answer->after_step(), failed_saves(job)};
  if (options.no_wait) {
    const nlohmann::json out = {{"job", options.job}, {"after_step", request.after_step}};
    return print_result(options.json
                            ? out.dump(2) + "\n"
                            : absl::StrCat("job ", options.job, " will save a checkpoint of ",
                                           "the first step that it completes after step ",
                                           request.after_step, "\n"));
  }
  const auto saved =
      wait_for_outcome(client, request, job, std::chrono::seconds(options.timeout_seconds));
  if (!saved.ok()) {
    const int code = fail(saved.status());
    return absl::IsUnknown(saved.status()) ? kNotKnown : code;
  }
  const int64_t step = *saved;
  const std::string folder = checkpoint_folder(job, step);
  const nlohmann::json out = {{"job", options.job}, {"step", step}, {"folder", folder}};
  return print_result(options.json ? out.dump(2) + "\n"
                                   : absl::StrCat("saved step ", step, " in ", folder, "\n"));
}

}  // namespace

void declare_checkpoint(CLI::App& app, Action& action) {
  auto options = std::make_shared<CheckpointOptions>();
  CLI::App* command = app.add_subcommand(
      "checkpoint", "Save a checkpoint of a running job now; it trains on meanwhile");
  add_job_argument(*command, options->job);
  command->add_flag("--no-wait", options->no_wait, "Do not wait until the checkpoint is there");
  command
      ->add_option("--timeout", options->timeout_seconds,
                   "Wait for at most this time, also while the job is queued")
      ->type_name("SECONDS")
      ->check(daemon::whole_number(1, kTimeoutSecondsMax))
      ->capture_default_str();
  add_coordinator_option(*command, options->coordinator);
  add_json_option(*command, options->json);
  command->footer(
      "All ranks save after the step in progress. The command ends when the checkpoint is on the "
      "disk, and prints its step\nand folder. Exit code 1: nothing was saved; 3: it is not known "
      "whether it was.\n"
      "\n"
      "Examples:\n"
      "  muster checkpoint 7\n"
      "  muster checkpoint 7 --no-wait\n"
      "  muster checkpoint 7 && muster decode --run out/first --prompt \"In the beginning\"");
  on_call(*command, action, options, checkpoint);
}

}  // namespace muster::cli
