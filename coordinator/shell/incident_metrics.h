// Metrics of incidents: totals, and the newest incident of each kind of each job, as a timestamp
// with labels. Independent of whether the job has its own series (job_metrics.h), because operators
// look for jobs with incidents. Used on the core loop's thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <utility>

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/registry.h>

#include "common/ids.h"
#include "common/time.h"
#include "coordinator/core/core.h"
#include "coordinator/core/records/incident.h"

namespace muster::coordinator {

// The oldest are removed first, so that the page stays bounded in a fleet where all jobs fail at
// once; muster_fleet_incidents_total counts all.
constexpr size_t kIncidentsShown = 512;

// Minimum time for which an incident is shown, also of an ended job: alerts report it for so long.
constexpr Duration kIncidentShownFor = std::chrono::minutes(10);

class IncidentMetrics {
 public:
  // Requires a `registry` that outlives it.
  explicit IncidentMetrics(prometheus::Registry& registry);

  // Call once per incident, when it is opened.
  void count(const Core& core, const Incident& incident, int64_t unix_ns);
  // Shows an incident that an earlier run of the coordinator counted, dated by its verdict.
  void restore(const Core& core, const Incident& incident);
  // Removes incidents that are no longer shown.
  void update(const Core& core, int64_t unix_ns);

 private:
  struct Shown {
    IncidentId id;
    int64_t unix_ns = 0;
    prometheus::Gauge* time = nullptr;
  };
  using Key = std::pair<JobId, IncidentKind>;

  void show(const Job& job, const Incident& incident, int64_t unix_ns);

  prometheus::Family<prometheus::Counter>& total_;
  prometheus::Family<prometheus::Gauge>& times_;
  std::map<Key, Shown> shown_;  // the newest of the kind
};

}  // namespace muster::coordinator
