// Labels shared by both daemons' metrics, and bounds of the number of series. The names are in
// daemon/metric_table.h.
//
// A job's time: productive_seconds_total, lost_seconds_total{cause, class} (names of
// coordinator/core/records/account.h with underscores) and goodput_ratio; the first two exist also
// for all jobs together, as muster_fleet_….
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>

#include <prometheus/histogram.h>

#include "common/job/ids.h"
#include "common/progress/step_times.h"

namespace muster::daemon {

using MetricLabels = std::map<std::string, std::string>;

// The default number of a job's ranks, and of a fleet's workers, with their own series: as many as
// a person can examine. Slow ranks and silent workers have series in addition, and totals cover all
// ranks and workers.
constexpr int32_t kSeriesSample = 64;
constexpr int32_t kSeriesSampleMax = 1'000'000;

// The default number of jobs with their own series: they make a page of 1 MB if the jobs have lost
// time by faults of several kinds.
constexpr int32_t kJobsShown = 96;
constexpr int32_t kJobsShownMax = 100'000;  // some 6 million series

// Returns whether item `index` of `count` items belongs to an evenly spread sample of at most
// `sample` items.
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

// Adds `steps` to `histogram`. Requires that the histogram was created with step_seconds_buckets(),
// and that these steps were not added before.
inline void observe(const StepTimes& steps, prometheus::Histogram& histogram) {
  histogram.ObserveMultiple({steps.counts.begin(), steps.counts.end()}, steps.seconds);
}

}  // namespace muster::daemon
