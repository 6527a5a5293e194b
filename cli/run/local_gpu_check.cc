#include "cli/run/local_gpu_check.h"

#include <string>

#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

#include "cli/terminal/child_process.h"
#include "common/process/run_child.h"
#include "common/text/escape.h"
#include "common/time/time.h"

namespace muster::cli {
namespace {

// The worker gives NVML a minute to initialise GPUs.
constexpr Duration kDeadline = std::chrono::seconds(70);
constexpr size_t kSentenceBytesMax = 300;

// Returns an object with a list "gpus".
absl::StatusOr<nlohmann::json> listed_by_worker() {
  const auto worker = sibling_program("muster-worker");
  if (!worker.ok()) return worker.status();
  const auto end = run_child({*worker, "--list-gpus"}, {.deadline = monotonic_now() + kDeadline});
  if (!end.ok()) return end.status();
  auto found = nlohmann::json::parse(end->output, nullptr, /*allow_exceptions=*/false);
  if (!found.is_object() || !found.contains("gpus") || !found["gpus"].is_array())
    return absl::InternalError("the output of muster-worker --list-gpus has no list of GPUs");
  return found;
}

// Returns the same, after one run of the worker for all calls: NVML takes seconds to initialise.
const absl::StatusOr<nlohmann::json>& list_gpus() {
  static const absl::StatusOr<nlohmann::json> found = listed_by_worker();
  return found;
}

}  // namespace

int32_t local_gpus() {
  const auto& found = list_gpus();
  return found.ok() ? static_cast<int32_t>((*found)["gpus"].size()) : 0;
}

std::string local_gpu_name() {
  const auto& found = list_gpus();
  if (!found.ok() || (*found)["gpus"].empty() || !(*found)["gpus"][0].is_object()) return "";
  const nlohmann::json name = (*found)["gpus"][0].value("name", nlohmann::json());
  return name.is_string() ? name.get<std::string>() : "";
}

absl::Status check_local_gpus(const v1::JobSpec& spec) {
  if (spec.gpus_per_rank() <= 0) return absl::OkStatus();
  const auto& listed = list_gpus();
  if (!listed.ok()) return listed.status();
  const nlohmann::json& found = *listed;
  const int64_t needed = int64_t{spec.gpus_per_rank()} * spec.ranks_per_node();
  if (needed <= static_cast<int64_t>(found["gpus"].size())) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("--gpus-per-rank ", spec.gpus_per_rank(), ": ", spec.ranks_per_node(),
                   spec.ranks_per_node() == 1 ? " rank needs " : " ranks need ", needed,
                   needed == 1 ? " GPU" : " GPUs", ", and this machine has ",
                   printable(found.value("sentence", std::string("none")), kSentenceBytesMax),
                   "; use fewer ranks, or let them share GPUs with --gpus-per-rank 0"));
}

}  // namespace muster::cli
