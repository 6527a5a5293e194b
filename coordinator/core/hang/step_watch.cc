#include "coordinator/core/hang/step_watch.h"

#include <algorithm>
#include <cmath>

#include "coordinator/core/hang/median.h"

namespace muster::coordinator {
namespace {

constexpr double kSlowerRatio = 1.15;
constexpr double kUsualRatio = 1.10;
// An hour with the default window. Less than three windows do not show how much they differ.
constexpr size_t kHistoryWindows = 12;
constexpr size_t kHistoryWindowsMin = 3;
// A job has thousands of windows, and none of them may be taken for a regression by chance.
constexpr double kNoiseTimes = 4;
// Windows of few long steps differ more, so that one more window is too little.
constexpr int32_t kExceedingMin = 20;
constexpr double kNoiseMin = 0.02;  // fraction of a step; clocks and temperatures differ by as much
constexpr double kSecondsPerMicro = 1e-6;
constexpr auto kStalls = static_cast<size_t>(StepPart::kCheckpoint);

}  // namespace

StepWatch::StepWatch(const Job& job, Duration window) : window_(window) {
  const JobSpec& spec = job.spec;
  if (spec.planned_step_us <= 0 || std::ssize(job.placement) != int64_t{spec.world_size()}) return;
  const auto seconds = [](int64_t us) { return kSecondsPerMicro * static_cast<double>(us); };
  const double step = seconds(spec.planned_step_us);
  const double communication = seconds(spec.planned_communication_us);
  const double data = seconds(spec.planned_data_us);
  const double stalls = seconds(spec.planned_checkpoint_us);
  plan_ = Reference{step + stalls,
                    {std::max(step - communication - data, 0.0), communication, data, stalls}};
}

StepFinding StepWatch::compare(const StepWindow::Values& window, const Reference& reference) {
  StepPartSeconds parts = window.parts;
  parts[kStalls] = window.stall.value_or(reference.parts[kStalls]);
  StepFinding finding{.seconds = window.seconds + parts[kStalls],
                      .reference_seconds = reference.seconds,
                      .growth = reference.growth};
  for (size_t i = 0; i < parts.size(); ++i) {
    const double excess = parts[i] - reference.parts[i];
    if (i > 0 && excess <= finding.excess_seconds) continue;
    finding.part = static_cast<StepPart>(i);
    finding.excess_seconds = excess;
  }
  const auto reports = [&](StepPart part) {
    const auto i = static_cast<size_t>(part);
    return parts[i] > 0 || reference.parts[i] > 0;
  };
  // Without its waits for the other ranks, a rank's computation contains them.
  finding.part_is_known =
      finding.part == StepPart::kCheckpoint ||
      reports(finding.part == StepPart::kData ? StepPart::kData : StepPart::kCommunication);
  return finding;
}

std::optional<StepFinding> StepWatch::compare_plan(const StepWindow::Values& window) {
  if (!plan_) return std::nullopt;
  StepFinding finding = compare(window, *plan_);
  const double ratio = slower_than_plan_ ? kUsualRatio : kSlowerRatio;
  finding.is_slower = finding.seconds > ratio * finding.reference_seconds;
  // The finding opens with the first slow steps in the window.
  if (slower_than_plan_ && window_.counted() - opened_at_ <= window_.covered())
    opened_seconds_ = std::max(opened_seconds_, finding.seconds);
  if (finding.is_slower == slower_than_plan_) return std::nullopt;
  slower_than_plan_ = finding.is_slower;
  opened_seconds_ = finding.seconds;
  opened_at_ = window_.counted();
  return finding;
}

StepWatch::Reference StepWatch::history_of(const StepWindow::Values& window) const {
  using Values = StepWindow::Values;
  // Scales each window to the tokens of a step in the newest one.
  std::vector<Values> windows = history_;
  std::vector<double> growths;
  for (Values& known : windows) {
    const double growth = known.tokens > 0 ? std::max(1.0, window.tokens / known.tokens) : 1;
    growths.push_back(growth);
    for (double* value : {&known.middle, &known.high, &known.error}) *value *= growth;
    for (double& part : known.parts) part *= growth;
  }
  const auto median = [&](auto value) {
    std::vector<double> values;
    for (const Values& known : windows) values.push_back(value(known));
    return median_of(values, Middle::kUpper);
  };
  Reference reference;
  reference.growth = median_of(growths, Middle::kUpper);
  const double middle = median([](const Values& known) { return known.middle; });
  const double mad = median([&](const Values& known) { return std::abs(known.middle - middle); });
  const double error = median([](const Values& known) { return known.error; });
  reference.noise = std::max({mad / kMadOfNormal, error, kNoiseMin * middle});
  for (size_t i = 0; i < reference.parts.size(); ++i)
    reference.parts[i] = median([i](const Values& known) { return known.parts[i]; });
  // A stall does not depend on the tokens of a step.
  std::vector<double> stalls = stalls_;
  reference.parts[kStalls] =
      stalls.empty() ? window.stall.value_or(0) : median_of(stalls, Middle::kUpper);
  reference.seconds = middle + reference.parts[kStalls];
  reference.high =
      median([](const Values& known) { return known.high; }) + reference.parts[kStalls];
  return reference;
}

std::optional<StepFinding> StepWatch::compare_history(const StepWindow::Values& window) {
  if (history_.size() < kHistoryWindowsMin) return std::nullopt;
  const Reference reference = history_of(window);
  StepWindow::Values typical = window;
  typical.seconds = window.middle;
  StepFinding finding = compare(typical, reference);
  const double low = window.low + window.stall.value_or(reference.parts[kStalls]);
  const bool exceeds = finding.seconds > kSlowerRatio * reference.seconds &&
                       finding.seconds - reference.seconds > kNoiseTimes * reference.noise &&
                       low > reference.high;
  if (!exceeds) exceeds_since_.reset();
  if (exceeds && !exceeds_since_) {
    exceeds_since_ = window_.counted();
    exceeding_ = 0;
    exceeds_saved_ = window.saved;
  }
  ++exceeding_;
  // The plan's finding states the same if the earlier steps were as planned, and the steps are not
  // slower than when it opened.
  const bool is_covered = slower_than_plan_ && finding.seconds <= kSlowerRatio * opened_seconds_ &&
                          reference.seconds <= kUsualRatio * reference.growth * plan_->seconds;
  // The stall of one slow save counts until the next save.
  const bool is_one_save = finding.part == StepPart::kCheckpoint && window.saved == exceeds_saved_;
  finding.is_slower = slower_than_before_
                          ? finding.seconds > kUsualRatio * finding.reference_seconds
                          : exceeds && !is_covered && !is_one_save && exceeding_ >= kExceedingMin &&
                                window_.counted() - *exceeds_since_ >= window_.covered();
  if (finding.is_slower == slower_than_before_) return std::nullopt;
  slower_than_before_ = finding.is_slower;
  return finding;
}

// Adds the window if it begins after those of the history. Steps that exceed the history are not
// added, so that a slow job does not become its own reference.
bool StepWatch::add_to_history(const StepWindow::Values& window) {
  if (window_.counted() - remembered_at_ < window_.covered() || exceeds_since_ ||
      slower_than_before_)
    return false;
  remembered_at_ = window_.counted();
  if (window.stall && stalls_.size() < kHistoryWindows && window.saved != stalls_saved_) {
    stalls_.push_back(*window.stall);
    stalls_saved_ = window.saved;
  }
  if (history_.size() >= kHistoryWindows) return false;
  history_.push_back(window);
  return true;
}

StepWatch::Findings StepWatch::observe(const RankProgress& progress, Instant now) {
  if (!window_.add(progress, now)) return {};
  const StepWindow::Values window = window_.values();
  seconds_ = window.seconds;
  Findings findings;
  findings.plan = compare_plan(window);
  findings.history = compare_history(window);
  findings.adds_to_history = add_to_history(window);
  return findings;
}

}  // namespace muster::coordinator
