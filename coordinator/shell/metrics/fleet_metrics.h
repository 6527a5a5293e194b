// Metrics of workers and nodes. Totals cover all workers. Individual series exist for the
// kSilentShown workers that have been silent for longest, and for a sample that is spread evenly
// over the workers' names. The core removes a worker when its lease expires; the metrics count the
// worker as lost for kLostKept, or until it returns, so that alerts can fire. Used on the core
// loop's thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <set>

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/registry.h>

#include "coordinator/core/core.h"

namespace muster::coordinator {

// The number of silent workers with series: enough to identify a rack that lost its power.
constexpr size_t kSilentShown = 64;
// The time for which a lost worker is counted. A node that is absent for longer is being repaired
// or was removed.
constexpr Duration kLostKept = std::chrono::hours(1);

class FleetMetrics {
 public:
  // `sample`: the number of workers that always have series.
  FleetMetrics(prometheus::Registry& registry, int32_t sample);

  void update(const Core& core, Instant now);
  // Counts an exclusion or the result of a check.
  void count_node(const NodeDecision& change);

 private:
  using Gauges = prometheus::Family<prometheus::Gauge>;
  struct WorkerSeries {
    prometheus::Gauge* age = nullptr;
    prometheus::Gauge* connected = nullptr;
    prometheus::Gauge* slots = nullptr;       // null for a lost worker
    prometheus::Gauge* slots_used = nullptr;  // null for a lost worker
  };
  // A worker's state at the last scrape.
  struct Seen {
    Instant last_message{};
    bool leaving = false;
  };

  void find_lost(const Core& core, Instant now);
  void update_totals(const Core& core, const NodeUses& used, Instant now);
  std::set<WorkerName> shown(const Core& core, Instant now) const;
  void update_worker(const Worker& worker, int32_t used, Instant now);
  void update_lost(const WorkerName& name, Instant last_message, Instant now);
  void remove(const WorkerSeries& series);
  void update_nodes(const Core& core);

  int32_t sample_;
  Gauges& workers_;
  Gauges& all_slots_;
  Gauges& age_max_;
  Gauges& age_;
  Gauges& connected_;
  Gauges& slots_;
  Gauges& slots_used_;
  Gauges& excluded_;
  prometheus::Family<prometheus::Counter>& exclusions_;
  prometheus::Family<prometheus::Counter>& checks_;
  std::map<WorkerName, WorkerSeries> series_;
  std::map<WorkerName, Seen> seen_;
  std::map<WorkerName, Instant> lost_;  // lost workers, with the time of their last message
};

}  // namespace muster::coordinator
