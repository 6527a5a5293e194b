// From the steps that a rank counted to a Prometheus histogram: both daemons' metrics have one.
#pragma once

#include <prometheus/histogram.h>

#include "common/step_times.h"

namespace muster::daemon {

inline prometheus::Histogram::BucketBoundaries step_seconds_buckets() {
  return {kStepSecondsBounds.begin(), kStepSecondsBounds.end()};
}

// `steps`: those that `histogram`, made with step_seconds_buckets(), does not have yet.
inline void observe(const StepTimes& steps, prometheus::Histogram& histogram) {
  histogram.ObserveMultiple({steps.counts.begin(), steps.counts.end()}, steps.seconds);
}

}  // namespace muster::daemon
