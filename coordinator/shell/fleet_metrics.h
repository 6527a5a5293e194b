// Metrics of workers and nodes. Totals count all of them; series of their own have the workers that stand out (those that have been silent
// for longest, kSilentShown of them) and a sample, spread evenly over the names. The core forgets a worker when its lease is over; here it is
// lost for an hour, or until it is back, so that somebody can be told. On the core loop's thread.
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

// Of a rack that lost its power, enough to see which one it was.
constexpr size_t kSilentShown = 64;
// A node that is away for longer is somebody's work already, or was taken away.
constexpr Duration kLostKept = std::chrono::hours(1);

class FleetMetrics {
 public:
  // `sample`: so many workers have series, however they fare.
  FleetMetrics(prometheus::Registry& registry, int32_t sample);

  void update(const Core& core, Instant now);
  void count_node(const NodeTold& told);

 private:
  using Gauges = prometheus::Family<prometheus::Gauge>;
  struct WorkerSeries {
    prometheus::Gauge* age = nullptr;
    prometheus::Gauge* connected = nullptr;
    prometheus::Gauge* slots = nullptr;       // null of one that is lost
    prometheus::Gauge* slots_used = nullptr;  // the same
  };
  // As it was at the last scrape.
  struct Seen {
    Instant last_heard{};
    bool leaving = false;
  };

  void find_lost(const Core& core, Instant now);
  void update_totals(const Core& core, const NodeUses& used, Instant now);
  std::set<WorkerName> shown(const Core& core, Instant now) const;
  void update_worker(const Worker& worker, int32_t used, Instant now);
  void update_lost(const WorkerName& name, Instant last_heard, Instant now);
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
  std::map<WorkerName, Instant> lost_;  // and when it was last heard from
};

}  // namespace muster::coordinator
