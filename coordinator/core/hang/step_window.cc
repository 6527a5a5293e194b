#include "coordinator/core/hang/step_window.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "coordinator/core/hang/median.h"

namespace muster::coordinator {
namespace {

// Memory is allocated, shapes are tuned and CUDA graphs are captured in these steps.
constexpr uint64_t kWindowWarmUpSteps = 3;
// Fewer values have no typical one.
constexpr size_t kIntervalsMin = 5;
// Bounds the memory of a job with short steps. Pages arrive several times a second.
constexpr int64_t kIntervalsOfWindow = 60;
// The standard error of the median of n values of a normal distribution with deviation 1, times the
// square root of n.
constexpr double kMedianError = 1.2533;

double& at(StepPartSeconds& parts, StepPart part) { return parts[static_cast<size_t>(part)]; }

double sum_of_parts(const StepPartSeconds& parts) {
  return std::accumulate(parts.begin(), parts.end(), 0.0);
}

// Returns whether rank 0 does nothing beside its steps.
bool only_trains(const RankProgress& progress) {
  return (progress.phase == Phase::kData || progress.phase == Phase::kStep) &&
         progress.checkpoints.saving_mib == 0;
}

// Returns the tokens of a rank since the attempt began: its rate is their mean over the steps,
// divided by the time of the newest step (worker/core/rank.cc).
double tokens_of(const RankProgress& progress) {
  const double tokens = progress.tokens_per_second * progress.step_seconds *
                        static_cast<double>(progress.step_times.total());
  return std::isfinite(tokens) ? std::max(tokens, 0.0) : 0;
}

}  // namespace

StepPartSeconds step_parts(const RankProgress& progress) {
  const double communication = progress.collective_wait_seconds;
  const double data = progress.data_wait_seconds;
  return {std::max(progress.step_times.seconds - communication - data, 0.0), communication, data,
          progress.checkpoints.stall_seconds};
}

// Records the end of a checkpoint period. Keeps the periods of the window, and at least one.
void StepWindow::add_save(const Counters& page) {
  const bool is_first = !saved_ || page.saved < *saved_;
  const bool is_same = saved_ == page.saved;
  saved_ = page.saved;
  if (is_same) return;
  if (is_first) return saves_.clear();
  saves_.push_back(page);
  while (saves_.size() > 2 && saves_[1].at <= page.at - window_) saves_.pop_front();
}

// Adds the steps since the last page. Returns whether there are enough new ones.
bool StepWindow::add_steps(const Counters& page) {
  if (!latest_ || page.steps < latest_->steps) {
    latest_ = page;
    return false;
  }
  const Duration time = page.at - latest_->at;
  if (page.steps == latest_->steps || time < window_ / kIntervalsOfWindow) return false;
  Interval interval{.time = time};
  const auto steps = static_cast<double>(page.steps - latest_->steps);
  interval.tokens = std::max(0.0, page.tokens - latest_->tokens) / steps;
  for (size_t i = 0; i < page.parts.size(); ++i)
    interval.per_step[i] = std::max(0.0, page.parts[i] - latest_->parts[i]) / steps;
  at(interval.per_step, StepPart::kCheckpoint) = 0;
  intervals_.push_back(interval);
  covered_ += time;
  counted_ += time;
  latest_ = page;
  while (intervals_.size() > kIntervalsMin && covered_ - intervals_.front().time >= window_) {
    covered_ -= intervals_.front().time;
    intervals_.pop_front();
  }
  return true;
}

StepWindow::Values StepWindow::values() const {
  const auto median = [&](auto value) {
    std::vector<double> values;
    for (const Interval& interval : intervals_) values.push_back(value(interval));
    return median_of(values, Middle::kUpper);
  };
  Values result;
  for (size_t i = 0; i < result.parts.size(); ++i)
    result.parts[i] = median([i](const Interval& interval) { return interval.per_step[i]; });
  result.saved = saved_.value_or(0);
  result.tokens = median([](const Interval& interval) { return interval.tokens; });
  std::vector<double> steps;
  for (const Interval& interval : intervals_) steps.push_back(sum_of_parts(interval.per_step));
  std::ranges::sort(steps);
  result.seconds = steps[steps.size() / 2];
  result.low = steps[steps.size() / 4];
  result.high = steps[steps.size() - 1 - steps.size() / 4];
  const auto quarter = static_cast<std::ptrdiff_t>(steps.size() / 4);
  result.middle = std::accumulate(steps.begin() + quarter, steps.end() - quarter, 0.0) /
                  static_cast<double>(std::ssize(steps) - 2 * quarter);
  for (double& step : steps) step = std::abs(step - result.seconds);
  const double mad = median_of(steps, Middle::kUpper);
  result.error = kMedianError / kMadOfNormal * mad / std::sqrt(static_cast<double>(steps.size()));
  const auto stalls = static_cast<size_t>(StepPart::kCheckpoint);
  if (saves_.size() > 1 && saves_.back().steps > saves_.front().steps) {
    result.stall = std::max(0.0, saves_.back().parts[stalls] - saves_.front().parts[stalls]) /
                   static_cast<double>(saves_.back().steps - saves_.front().steps);
  }
  return result;
}

bool StepWindow::add(const RankProgress& progress, Instant now) {
  const Counters page{now, progress.step_times.total(), progress.checkpoints.saved,
                      step_parts(progress), tokens_of(progress)};
  const bool is_sane = std::ranges::all_of(page.parts, [](double s) { return std::isfinite(s); });
  if (!is_sane || page.steps < kWindowWarmUpSteps) return false;
  add_save(page);
  if (!only_trains(progress)) {
    latest_.reset();
    return false;
  }
  return add_steps(page) && intervals_.size() >= kIntervalsMin && covered_ >= window_;
}

}  // namespace muster::coordinator
