// The labels that both daemons' metrics share, and the bounds of how many series there may be. The names are in daemon/metric_table.h.
//
// Where a job's time went: productive_seconds_total, lost_seconds_total{cause, class} (words of coordinator/core/records/account.h with
// underscores) and goodput_ratio; the first two of all jobs together as muster_fleet_….
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>

#include <prometheus/histogram.h>

#include "common/ids.h"
#include "common/step_times.h"

namespace muster::daemon {

using MetricLabels = std::map<std::string, std::string>;

// Ranks of a job, and workers of a fleet, that have series of their own, unless the operator says otherwise: as many as a person can look at. What
// stands out has series, too, and totals tell of all.
constexpr int32_t kSeriesSample = 64;
constexpr int32_t kSeriesSampleMax = 1'000'000;

// Jobs that have series of their own, unless the operator says otherwise: with what each loses by faults of several kinds, a page of 1 MB.
constexpr int32_t kJobsShown = 96;
constexpr int32_t kJobsShownMax = 100'000;  // some 6 million series

// Whether the `index`th of `count` is one of at most `sample` that are spread evenly.
constexpr bool is_sampled(int64_t index, int64_t count, int64_t sample) {
  if (sample <= 0) return false;
  const int64_t stride = std::max<int64_t>(1, (count + sample - 1) / sample);
  return index % stride == 0;
}

inline MetricLabels job_labels(JobId job, const std::string& name) {
  return {{"job_id", std::to_string(job.value())}, {"name", name}};
}

inline MetricLabels rank_labels(JobId job, const std::string& name, Attempt attempt, Rank rank) {
  MetricLabels labels = job_labels(job, name);
  labels.emplace("attempt", std::to_string(attempt.value()));
  labels.emplace("rank", std::to_string(rank.value()));
  return labels;
}

inline prometheus::Histogram::BucketBoundaries step_seconds_buckets() {
  return {kStepSecondsBounds.begin(), kStepSecondsBounds.end()};
}

// `steps`: those that `histogram`, made with step_seconds_buckets(), does not have yet.
inline void observe(const StepTimes& steps, prometheus::Histogram& histogram) {
  histogram.ObserveMultiple({steps.counts.begin(), steps.counts.end()}, steps.seconds);
}

}  // namespace muster::daemon
