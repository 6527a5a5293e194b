// The words that both daemons' metrics share, so that one thing has one name:
//
//   muster_job_…{job, name}                   a job, as the coordinator knows it from its ranks' heartbeats
//   muster_fleet_…{worker}                    a worker, as the coordinator sees it
//   muster_coordinator_…                      the coordinator itself
//   muster_rank_…{job, name, attempt, rank}   one rank of a worker, from its progress page
//   muster_worker_…                           the worker itself
//
// The figures of training have the same last words everywhere: step, step_seconds, tokens_per_second, mfu_ratio, loss,
// grad_norm. A series of them begins with the first step that it is about: before that there is no loss, not even 0.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include <prometheus/histogram.h>

#include "common/ids.h"
#include "common/step_times.h"

namespace muster::daemon {

using MetricLabels = std::map<std::string, std::string>;

inline MetricLabels job_labels(JobId job, const std::string& name) {
  return {{"job", std::to_string(job.value())}, {"name", name}};
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
