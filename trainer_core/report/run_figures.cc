#include "trainer_core/report/run_figures.h"

#include <algorithm>
#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include "common/text/number_text.h"

namespace muster::trainer {
namespace {

// The number of steps after the first from which the mean step time is accurate enough.
constexpr int64_t kEstimateAfter = 5;
// The minimum time of a run whose estimate is printed, in seconds.
constexpr double kEstimatedSecondsMin = 60;
constexpr double kSecondsPerDay = 86'400;
constexpr double kTrillion = 1e12;

std::string duration_text(double seconds) {
  const auto whole = static_cast<int64_t>(seconds);
  if (seconds < 60) return absl::StrFormat("%.3g s", seconds);
  if (whole < 3600) return absl::StrFormat("%dm %02ds", whole / 60, whole % 60);
  if (whole < 86'400) return absl::StrFormat("%dh %02dm", whole / 3600, whole / 60 % 60);
  return absl::StrFormat("%dd %02dh", whole / 86'400, whole / 3600 % 24);
}

std::string step_text(double seconds) {
  return absl::StrCat(fixed_text(seconds, seconds < 0.1 ? 6 : seconds < 1 ? 4 : 3), " s");
}

double ratio(double tflops_per_second, double peak) {
  return peak > 0 ? std::min(tflops_per_second / peak, 1.0) : 0;
}

}  // namespace

void RunFigures::add(int64_t step, double seconds, double tokens_per_device) {
  if (steps_++ == 0) {
    first_step_ = step;
    first_seconds_ = seconds;
  } else {
    seconds_ += seconds;
  }
  last_seconds_ = seconds;
  tokens_ = tokens_per_device;
}

Throughput RunFigures::of(double seconds, double tokens_per_device) const {
  Throughput result;
  if (!(seconds > 0)) return result;
  result.seconds = seconds;
  result.tokens_per_second = tokens_per_device * ranks_ / seconds;
  result.sequences_per_second = result.tokens_per_second / config_.max_target_length;
  result.tflops_per_second = tflops_.total() / seconds;
  const double causal = tflops_.total_causal() / seconds;
  const double data_sheet = peaks_.data_sheet ? peaks_.data_sheet->tflops : 0;
  result.mfu = {.data_sheet = ratio(result.tflops_per_second, data_sheet),
                .data_sheet_causal = ratio(causal, data_sheet),
                .measured = ratio(result.tflops_per_second, peaks_.measured_tflops),
                .measured_causal = ratio(causal, peaks_.measured_tflops)};
  if (result.tokens_per_second > 0)
    result.days_to_1t_tokens = kTrillion / result.tokens_per_second / kSecondsPerDay;
  return result;
}

Throughput RunFigures::mean() const {
  return steps_ > 1 ? of(seconds_ / static_cast<double>(steps_ - 1), tokens_)
                    : of(first_seconds_, tokens_);
}

double RunFigures::estimated_run_seconds() const {
  return steps_ == 0 ? 0 : mean().seconds * static_cast<double>(config_.steps);
}

std::string RunFigures::estimate_line() const {
  if (steps_ != kEstimateAfter + 1 || estimated_run_seconds() < kEstimatedSecondsMin) return "";
  const double left = static_cast<double>(config_.steps - first_step_ - steps_) * mean().seconds;
  return absl::StrFormat("estimated wall time of the run: %s (%s of %s), %s left",
                         duration_text(estimated_run_seconds()),
                         counted(static_cast<uint64_t>(config_.steps), "step"),
                         step_text(mean().seconds), duration_text(left));
}

std::vector<std::string> RunFigures::summary() const {
  std::vector<std::string> lines;
  if (steps_ == 0) return lines;
  const Throughput figures = mean();
  const int64_t mean_of = std::max<int64_t>(steps_ - 1, 1);
  lines.push_back(absl::StrFormat(
      "summary: mean of %s%s: step %s, %s sequences/s, %.1f tokens/s on %s, %s TFLOP/s/device",
      counted(static_cast<uint64_t>(mean_of), "step"), steps_ > 1 ? " after the first" : "",
      step_text(figures.seconds), fixed_text(figures.sequences_per_second, 2),
      figures.tokens_per_second, counted(static_cast<uint64_t>(ranks_), "device"),
      fixed_text(figures.tflops_per_second, 3)));
  const auto percent = [](double share) { return absl::StrCat(fixed_text(100 * share, 2), "%"); };
  std::vector<std::string> shares;
  if (peaks_.data_sheet) {
    shares.push_back(absl::StrFormat(
        "%s of the data sheet's %g TFLOP/s (%s, %s), %s if attention counts as causal",
        percent(figures.mfu.data_sheet), peaks_.data_sheet->tflops, peaks_.data_sheet->device,
        peaks_.data_sheet->type, percent(figures.mfu.data_sheet_causal)));
  }
  if (peaks_.measured_tflops > 0) {
    shares.push_back(absl::StrFormat(
        "%s of the measured %.4g TFLOP/s, %s if attention counts as causal%s",
        percent(figures.mfu.measured), peaks_.measured_tflops, percent(figures.mfu.measured_causal),
        figures.mfu.measured_causal < 1
            ? ""
            : "; the peak was measured too low: remove gemm-peaks.json to measure "
              "it again"));
  }
  if (peaks_.measured_tflops <= 0 && !peaks_.why_unknown.empty()) {
    shares.push_back(absl::StrCat("of the measured peak is unknown: ", peaks_.why_unknown,
                                  "; a run of several steps on an idle machine measures it"));
  }
  for (const std::string& share : shares) lines.push_back(absl::StrCat("summary: MFU ", share));
  lines.push_back(absl::StrFormat(
      "summary: 1T tokens take %s days; the run of %s takes %s at this pace; last step: %s",
      fixed_text(figures.days_to_1t_tokens, 2),
      counted(static_cast<uint64_t>(config_.steps), "step"), duration_text(estimated_run_seconds()),
      step_text(last_seconds_)));
  return lines;
}

}  // namespace muster::trainer
