// Metrics of the node's network devices. A device has a series for each value that it reports now;
// the series of a device that is gone, or of a value that it has no more, are removed.
#pragma once

#include <set>

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/registry.h>

#include "common/time/time.h"
#include "worker/network/network_report.h"

namespace muster::worker {

// The Prometheus series of a node's network devices. Any thread may call it, one at a time.
class NetworkMetrics {
 public:
  explicit NetworkMetrics(prometheus::Registry& registry);

  // Sets all series from `report`.
  void update(const NetworkReport& report, Instant now);

 private:
  // A family whose series exist as long as each update sets them.
  template <class Metric>
  struct Series {
    prometheus::Family<Metric>& family;
    std::set<Metric*> before{}, now{};

    void remove_old();
  };

  Series<prometheus::Gauge> age_, up_, healthy_, rate_;
  Series<prometheus::Counter> bytes_, errors_;
};

}  // namespace muster::worker
