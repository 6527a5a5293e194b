// muster checkpoint: a running job saves a checkpoint now and continues to train.
#include <unistd.h>

#include <chrono>
#include <thread>

#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

#include "cli/client.h"
#include "cli/command.h"
#include "cli/jobs/job_view.h"
#include "cli/terminal/terminal.h"

namespace muster::cli {
namespace {

// Poll interval; a worker reports its ranks once a second.
constexpr auto kPollPeriod = std::chrono::milliseconds(200);

struct CheckpointOptions {
  uint64_t job = 0;
  bool no_wait = false;
  CoordinatorTarget coordinator;
  bool json = false;
};

const v1::RankStatus& rank_zero(const v1::Job& job) {
  return job.ranks_size() > 0 ? job.ranks(0) : v1::RankStatus::default_instance();
}

// Returns the checkpoint folder of a step; "" if the config has none.
std::string folder_of(const v1::Job& job, int64_t step) {
  const auto config =
      nlohmann::json::parse(job.spec().train_config_json(), nullptr, /*allow_exceptions=*/false);
  if (!config.is_object()) return "";
  const auto directory = config.find("checkpoint_directory");
  if (directory == config.end() || !directory->is_string()) return "";
  return absl::StrCat(directory->get<std::string>(), "/", step);
}

// The state of the job when the request was made.
struct Request {
  uint32_t attempt;
  int64_t after_step;
  uint64_t failed;  // saves that have failed
};

// Returns the step from which the attempt after the request's resumed, nullopt while it is not
// known, or an error if it never will be.
absl::StatusOr<std::optional<int64_t>> next_first_step(Client& client, const v1::Job& job,
                                                       const Request& request) {
  const auto history = client.job_history(job.id(), job.attempt() - request.attempt);
  if (!history.ok()) return history.status();
  for (const v1::JobAttempt& attempt : history->attempts()) {
    if (attempt.attempt() != request.attempt + 1) continue;
    if (attempt.first_step() >= 0) return std::optional(attempt.first_step());
    if (attempt.ended_unix_ns() == 0 && rank_zero(job).step() <= 0) return std::nullopt;
  }
  return absl::NotFoundError("no attempt resumed from it");
}

// Returns the step that was saved, nullopt while it is not finished, or an error if it never will
// be. If the attempt has ended, the next one's first step shows whether it was saved before.
absl::StatusOr<std::optional<int64_t>> saved_step(Client& client, const v1::Job& job,
                                                  const Request& request) {
  const v1::RankStatus& rank = rank_zero(job);
  if (job.attempt() == request.attempt && rank.checkpoint_step() > request.after_step)
    return std::optional(rank.checkpoint_step());
  const std::string name = absl::StrCat("job ", job.id());
  if (is_terminal_state(job.state())) {
    return absl::AbortedError(
        absl::StrCat(name, " has ended before it saved a checkpoint: ", job.reason()));
  }
  if (job.attempt() != request.attempt) {
    const auto first_step = next_first_step(client, job, request);
    if (absl::IsUnavailable(first_step.status())) return first_step;
    if (first_step.ok() && (!first_step->has_value() || **first_step > request.after_step))
      return first_step;
    return absl::AbortedError(absl::StrCat(name, " was stopped before it saved a checkpoint (",
                                           job.reason(), "); repeat the request later"));
  }
  if (rank.checkpoints().failed() > request.failed) {
    return absl::AbortedError(
        absl::StrCat(name, " could not save the checkpoint and continues to train: `muster logs ",
                     job.id(), " --rank 0` shows why"));
  }
  return std::nullopt;
}

int checkpoint(const CheckpointOptions& options) {
  Client client(options.coordinator);
  const auto answer = client.checkpoint_job(options.job);
  if (!answer.ok()) return fail(answer.status());
  v1::Job job = answer->job();
  const Request request{job.attempt(), answer->after_step(), rank_zero(job).checkpoints().failed()};
  if (options.no_wait) {
    const nlohmann::json out = {{"job", options.job}, {"after_step", request.after_step}};
    return print_result(options.json
                            ? out.dump(2) + "\n"
                            : absl::StrCat("job ", options.job, " will save a checkpoint of ",
                                           "the first step that it completes after step ",
                                           request.after_step, "\n"));
  }
  absl::StatusOr<std::optional<int64_t>> saved = std::nullopt;
  bool warned = false;
  const absl::Status status = with_reconnection(
      client,
      [&] {
        while (saved.ok() && !saved->has_value()) {
          std::this_thread::sleep_for(kPollPeriod);
          auto now = client.get_job(options.job);
          if (!now.ok()) return now.status();
          job = *std::move(now);
          auto step = saved_step(client, job, request);
          if (absl::IsUnavailable(step.status())) return step.status();
          saved = std::move(step);
          if (saved.ok() && !saved->has_value() && !is_running_state(job.state()) && !warned) {
            warned = true;
            warn(absl::StrCat("job ", job.id(), " was stopped (", job.reason(),
                              "); the command waits for its next attempt, whose first step shows "
                              "whether the checkpoint was saved"));
          }
        }
        return saved.status();
      },
      [](const absl::Status& loss) { warn(loss_text(loss)); });
  if (!status.ok()) return fail(status);
  const int64_t step = **saved;
  const std::string folder = folder_of(job, step);
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
  add_coordinator_option(*command, options->coordinator);
  add_json_option(*command, options->json);
  command->footer(
      "All ranks save after the step in progress. The command ends when the checkpoint is on the "
      "disk, and prints its step\nand folder.\n"
      "\n"
      "Examples:\n"
      "  muster checkpoint 7\n"
      "  muster checkpoint 7 --no-wait\n"
      "  muster checkpoint 7 && muster decode --run out/first --prompt \"In the beginning\"");
  on_call(*command, action, options, checkpoint);
}

}  // namespace muster::cli
