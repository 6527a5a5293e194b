#include "coordinator/core/hang/plan_watch.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace muster::coordinator {
namespace {

// Memory is allocated, shapes are tuned and CUDA graphs are captured in these steps.
constexpr uint64_t kPlanWarmUpSteps = 3;
constexpr double kSlowerRatio = 1.15;
constexpr double kPlannedRatio = 1.10;
// Fewer values have no typical one.
constexpr size_t kIntervalsMin = 5;
// Bounds the memory of a job with short steps. Pages arrive several times a second.
constexpr int64_t kIntervalsOfWindow = 60;
constexpr double kSecondsPerMicro = 1e-6;

double& at(StepPartSeconds& parts, StepPart part) { return parts[static_cast<size_t>(part)]; }

double sum_of_parts(const StepPartSeconds& parts) {
  return std::accumulate(parts.begin(), parts.end(), 0.0);
}

double middle_of(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Returns whether rank 0 does nothing beside its steps.
bool only_trains(const RankProgress& progress) {
  return (progress.phase == Phase::kData || progress.phase == Phase::kStep) &&
         progress.checkpoints.saving_mib == 0;
}

}  // namespace

StepPartSeconds step_parts(const RankProgress& progress) {
  const double communication = progress.collective_wait_seconds;
  const double data = progress.data_wait_seconds;
  return {std::max(progress.step_times.seconds - communication - data, 0.0), communication, data,
          progress.checkpoints.stall_seconds};
}

PlanWatch::PlanWatch(const Job& job, Duration window) : window_(window) {
  const JobSpec& spec = job.spec;
  if (std::ssize(job.placement) != int64_t{spec.world_size()}) return;
  const auto seconds = [](int64_t us) { return kSecondsPerMicro * static_cast<double>(us); };
  planned_seconds_ = seconds(spec.planned_step_us);
  const double communication = seconds(spec.planned_communication_us);
  const double data = seconds(spec.planned_data_us);
  planned_ = {std::max(planned_seconds_ - communication - data, 0.0), communication, data,
              seconds(spec.planned_checkpoint_us)};
}

// Records the end of a checkpoint period. Keeps the periods of the window, and at least one.
void PlanWatch::add_save(const Counters& page) {
  const bool is_first = !saved_ || page.saved < *saved_;
  const bool is_same = saved_ == page.saved;
  saved_ = page.saved;
  if (is_same) return;
  if (is_first) return saves_.clear();
  saves_.push_back(page);
  while (saves_.size() > 2 && saves_[1].at <= page.at - window_) saves_.pop_front();
}

// Adds the steps since the last page. Returns whether there are enough new ones.
bool PlanWatch::add_steps(const Counters& page) {
  if (!latest_ || page.steps < latest_->steps) {
    latest_ = page;
    return false;
  }
  const Duration time = page.at - latest_->at;
  if (page.steps == latest_->steps || time < window_ / kIntervalsOfWindow) return false;
  Interval interval{.time = time};
  const auto steps = static_cast<double>(page.steps - latest_->steps);
  for (size_t i = 0; i < page.parts.size(); ++i)
    interval.per_step[i] = std::max(0.0, page.parts[i] - latest_->parts[i]) / steps;
  at(interval.per_step, StepPart::kCheckpoint) = 0;
  intervals_.push_back(interval);
  covered_ += time;
  latest_ = page;
  while (intervals_.size() > kIntervalsMin && covered_ - intervals_.front().time >= window_) {
    covered_ -= intervals_.front().time;
    intervals_.pop_front();
  }
  return true;
}

PlanWatch::Finding PlanWatch::compare() const {
  const auto median = [&](auto value) {
    std::vector<double> values;
    for (const Interval& interval : intervals_) values.push_back(value(interval.per_step));
    return middle_of(std::move(values));
  };
  StepPartSeconds parts{};
  for (size_t i = 0; i < parts.size(); ++i)
    parts[i] = median([i](const StepPartSeconds& step) { return step[i]; });
  const auto stalls = static_cast<size_t>(StepPart::kCheckpoint);
  parts[stalls] = planned_[stalls];
  if (saves_.size() > 1 && saves_.back().steps > saves_.front().steps) {
    parts[stalls] = std::max(0.0, saves_.back().parts[stalls] - saves_.front().parts[stalls]) /
                    static_cast<double>(saves_.back().steps - saves_.front().steps);
  }
  Finding finding{.seconds = median(sum_of_parts) + parts[stalls],
                  .planned_seconds = planned_seconds_ + planned_[stalls]};
  for (size_t i = 0; i < parts.size(); ++i) {
    const double excess = parts[i] - planned_[i];
    if (i > 0 && excess <= finding.excess_seconds) continue;
    finding.part = static_cast<StepPart>(i);
    finding.excess_seconds = excess;
  }
  return finding;
}

std::optional<PlanWatch::Finding> PlanWatch::observe(const RankProgress& progress, Instant now) {
  if (planned_seconds_ <= 0) return std::nullopt;
  const Counters page{now, progress.step_times.total(), progress.checkpoints.saved,
                      step_parts(progress)};
  const bool is_sane = std::ranges::all_of(page.parts, [](double s) { return std::isfinite(s); });
  if (!is_sane || page.steps < kPlanWarmUpSteps) return std::nullopt;
  add_save(page);
  if (!only_trains(progress)) {
    latest_.reset();
    return std::nullopt;
  }
  if (!add_steps(page) || intervals_.size() < kIntervalsMin || covered_ < window_)
    return std::nullopt;
  Finding finding = compare();
  const double ratio = is_slower_ ? kPlannedRatio : kSlowerRatio;
  finding.is_slower = finding.seconds > ratio * finding.planned_seconds;
  if (finding.is_slower == is_slower_) return std::nullopt;
  is_slower_ = finding.is_slower;
  return finding;
}

}  // namespace muster::coordinator
