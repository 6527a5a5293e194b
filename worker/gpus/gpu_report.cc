#include "worker/gpus/gpu_report.h"

#include <algorithm>
#include <set>

#include <absl/strings/ascii.h>
#include <absl/strings/match.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/str_join.h>
#include <absl/strings/str_split.h>

namespace muster::worker {
namespace {

// A lost GPU is the cause of all later errors.
bool explains_more(const GpuEvent& event, const GpuEvent* than) {
  return than == nullptr || (event.blame == GpuBlame::kNode && than->blame == GpuBlame::kGpu);
}

}  // namespace

GpuErrors errors_since(const GpuReport& report, std::span<const int32_t> of, Instant since,
                       Instant now) {
  GpuErrors errors;
  const GpuEvent* cause = nullptr;
  for (const GpuEvent& event : report.events) {
    if (event.at < since || std::ranges::find(of, static_cast<int32_t>(event.gpu)) == of.end())
      continue;
    errors.messages.push_back(
        absl::StrFormat("[%.6f] NVML: %s", to_seconds(event.at.time_since_epoch()), event.text));
    if (event.blame != GpuBlame::kProgram && explains_more(event, cause)) cause = &event;
  }
  if (cause != nullptr) errors.cause = cause->text;
  // Includes a GPU that was lost before the rank received it.
  for (const int32_t gpu : of) {
    const auto index = static_cast<size_t>(gpu);
    if (errors.cause.empty() && index < report.gpus.size())
      errors.cause = report.gpus[index].problem;
  }
  if (const std::string silence = nvml_silence(report, now); !of.empty() && !silence.empty())
    errors.messages.push_back(silence);
  return errors;
}

std::string nvml_silence(const GpuReport& report, Instant now) {
  if (!report.has_nvml() || now - report.answered < kNvmlSilence) return "";
  return absl::StrFormat("NVML has not answered for %.0f s: a GPU or its driver hangs",
                         to_seconds(now - report.answered));
}

std::string why_unfit(const GpuReport& report, Instant now) {
  std::vector<std::string> why;
  if (std::string silence = nvml_silence(report, now); !silence.empty())
    why.push_back(std::move(silence));
  why.insert(why.end(), report.missing.begin(), report.missing.end());
  for (const GpuState& gpu : report.gpus)
    if (!gpu.problem.empty()) why.push_back(gpu.problem);
  return absl::StrJoin(why, "; ");
}

std::string missing_gpus_reason(const GpuReport& report) {
  if (!report.gpus.empty()) return "";
  if (!report.none_because.empty()) return report.none_because;
  return absl::StrFormat(
      "NVML did not answer within %g s of the worker's start: restart the worker once nvidia-smi "
      "answers",
      to_seconds(kGpusFoundWithin));
}

std::string describe_gpus(const GpuReport& report) {
  if (report.gpus.empty()) return absl::StrCat("no GPUs: ", missing_gpus_reason(report));
  std::set<std::string> names;
  for (const GpuState& gpu : report.gpus) names.insert(gpu.gpu.name);
  return absl::StrCat(report.gpus.size(), report.gpus.size() == 1 ? " GPU " : " GPUs ",
                      absl::StrJoin(names, ", "), ", driver ",
                      report.driver.empty() ? "unknown" : report.driver);
}

std::vector<GpuState> visible_gpus(std::vector<GpuState> gpus,
                                   const std::optional<std::string>& variable) {
  if (!variable) return gpus;
  std::vector<GpuState> visible;
  for (const absl::string_view word : absl::StrSplit(*variable, ',')) {
    const absl::string_view name = absl::StripAsciiWhitespace(word);
    int32_t number = -1;
    const bool is_number = absl::SimpleAtoi(name, &number);
    const auto found = std::ranges::find_if(gpus, [&](const GpuState& gpu) {
      // Counts as CUDA does: only GPUs that this process may open.
      return is_number ? &gpu - gpus.data() == number
                       : !name.empty() && absl::StartsWith(gpu.gpu.uuid, name);
    });
    const bool is_new =
        found != gpus.end() && std::ranges::none_of(visible, [&](const GpuState& gpu) {
          return gpu.gpu.uuid == found->gpu.uuid;
        });
    if (!is_new) break;
    visible.push_back(*found);
  }
  return visible;
}

std::string visible_gpus(const GpuReport& report) {
  std::vector<std::string> uuids;
  for (const GpuState& state : report.gpus) uuids.push_back(state.gpu.uuid);
  return uuids.empty() ? "none" : absl::StrJoin(uuids, ",");
}

}  // namespace muster::worker
