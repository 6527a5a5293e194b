// Metrics of incidents: totals, and the newest incident of each kind of each job, as a timestamp
// with labels. A job with incidents is shown even if it has no series of its own (job_metrics.h),
// because operators search for jobs with incidents. Used on the core loop's thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <utility>

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/registry.h>

#include "common/job/ids.h"
#include "common/time/time.h"
#include "coordinator/core/core.h"
#include "coordinator/core/records/incident.h"

namespace muster::coordinator {

// The maximum number of incidents shown, so that the page is bounded in a fleet where all jobs fail
// at once. The oldest are removed first; muster_fleet_incidents_total counts all incidents.
constexpr size_t kIncidentsShown = 512;

// The minimum time for which an incident is shown, even if its job has ended. Alerts report the
// incident for this time.
constexpr Duration kIncidentShownFor = std::chrono::minutes(10);

class IncidentMetrics {
 public:
  // Requires that `registry` outlives this object.
  explicit IncidentMetrics(prometheus::Registry& registry);

  // Counts and shows an incident. Call it once for each incident, when the incident is opened.
  void count(const Core& core, const Incident& incident, int64_t unix_ns);
  // Shows an incident that an earlier run of the coordinator counted, with the time of its verdict.
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
  std::map<Key, Shown> shown_;  // the newest incident of each kind and job
};

}  // namespace muster::coordinator
