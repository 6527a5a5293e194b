#include "cli/jobs/checkpoint_outcome.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

#include "cli/jobs/job_view.h"

namespace muster::cli {
namespace {

namespace fs = std::filesystem;

nlohmann::json config_of(const v1::Job& job) {
  auto config =
      nlohmann::json::parse(job.spec().train_config_json(), nullptr, /*allow_exceptions=*/false);
  return config.is_object() ? std::move(config) : nlohmann::json::object();
}

std::string checkpoint_directory(const v1::Job& job) {
  const auto config = config_of(job);
  const auto directory = config.find("checkpoint_directory");
  return directory != config.end() && directory->is_string() ? directory->get<std::string>() : "";
}

// Returns whether attempts may resume from copies in the memory of nodes, which no folder has.
bool has_local_copies(const v1::Job& job) {
  const auto config = config_of(job);
  const auto enabled = config.find("enable_emergency_checkpoint");
  return enabled != config.end() && *enabled == true;
}

// The manifest is the file of a checkpoint that is written last.
bool has_manifest(const fs::path& folder, int64_t step) {
  std::ifstream file(folder / "manifest.json");
  const auto manifest = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!manifest.is_object()) return false;
  const auto saved = manifest.find("step");
  return saved != manifest.end() && *saved == step;
}

// Returns the first step after the request of which this machine sees a complete checkpoint.
std::optional<int64_t> visible_step(const v1::Job& job, const CheckpointRequest& request) {
  std::optional<int64_t> first;
  const std::string directory = checkpoint_directory(job);
  if (directory.empty()) return first;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    int64_t step = 0;
    const bool is_step = absl::SimpleAtoi(it->path().filename().string(), &step);
    if (is_step && step > request.after_step && (!first || step < *first) &&
        has_manifest(it->path(), step))
      first = step;
  }
  return first;
}

// Returns the step from which the first attempt after the request's resumed that loaded one; -1
// while there is none.
int64_t resumed_step(const CheckpointRequest& request, const v1::GetJobHistoryResponse& history) {
  int64_t step = -1;
  for (const v1::JobAttempt& attempt : history.attempts())
    if (attempt.attempt() > request.attempt && attempt.first_step() >= 0)
      step = attempt.first_step();
  return step;
}

absl::Status not_known(const v1::Job& job, const CheckpointRequest& request, std::string fact) {
  const std::string directory = checkpoint_directory(job);
  return absl::UnknownError(absl::StrCat(
      "it is not known whether job ", job.id(), " has saved a checkpoint after step ",
      request.after_step, ": ", fact,
      directory.empty() ? "; check the program's own folder"
                        : absl::StrCat(", and this machine sees no complete one in ", directory)));
}

}  // namespace

std::string checkpoint_folder(const v1::Job& job, int64_t step) {
  const std::string directory = checkpoint_directory(job);
  return directory.empty() ? "" : absl::StrCat(directory, "/", step);
}

bool needs_history(const v1::Job& job, const CheckpointRequest& request) {
  return job.attempt() != request.attempt;
}

absl::StatusOr<std::optional<int64_t>> checkpoint_outcome(
    const v1::Job& job, const CheckpointRequest& request,
    const v1::GetJobHistoryResponse& history) {
  if (job.attempt() == request.attempt && job.ranks_size() > 0 &&
      job.ranks(0).checkpoint_step() > request.after_step)
    return std::optional(job.ranks(0).checkpoint_step());
  const int64_t resumed = needs_history(job, request) ? resumed_step(request, history) : -1;
  if (resumed > request.after_step && !has_local_copies(job)) return std::optional(resumed);
  if (resumed >= 0 || is_terminal_state(job.state())) {
    if (const auto step = visible_step(job, request)) return step;
    if (resumed > request.after_step) {
      return not_known(job, request,
                       absl::StrCat("its next attempt resumed from step ", resumed,
                                    ", which may be a copy in the memory of nodes"));
    }
    if (resumed < 0) return not_known(job, request, "it has ended: " + job.reason());
    return absl::AbortedError(absl::StrCat(
        "job ", job.id(), " was stopped before it saved a checkpoint: its next attempt resumed ",
        "from step ", resumed, "; repeat the request later"));
  }
  if (job.attempt() == request.attempt && job.ranks_size() > 0 &&
      job.ranks(0).checkpoints().failed() > request.failed) {
    return absl::AbortedError(absl::StrCat(
        "job ", job.id(), " could not save the checkpoint and continues to train: `muster logs ",
        job.id(), " --rank 0` shows why"));
  }
  return std::nullopt;
}

}  // namespace muster::cli
