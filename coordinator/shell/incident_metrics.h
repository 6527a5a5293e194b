// Metrics of incidents: how many there were in all, and the newest of each kind of each job, as a time with labels. These do not depend on whether
// the job has series of its own (job_metrics.h): who had an incident is who people ask for. On the core loop's thread.
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

// The oldest go first, so that a page has a bound in a fleet where all jobs fail at once; muster_fleet_incidents_total counts all.
constexpr size_t kIncidentsShown = 512;

// At least, also of a job that has ended: alerts tell of an incident for so long.
constexpr Duration kIncidentTold = std::chrono::minutes(10);

class IncidentMetrics {
 public:
  // `registry` outlives it.
  explicit IncidentMetrics(prometheus::Registry& registry);

  // Once for each, when it is opened.
  void count(const Core& core, const Incident& incident, int64_t unix_ns);
  // One that an earlier life of the coordinator has counted: it is shown again, as of its verdict.
  void restore(const Core& core, const Incident& incident);
  // What nobody is told of any more goes.
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
