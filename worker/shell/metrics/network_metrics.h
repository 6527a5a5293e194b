// Metrics of the node's network devices. A device has a series for each value that it reports.
#pragma once

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/registry.h>

#include "worker/network/network_report.h"

namespace muster::worker {

// The Prometheus series of a node's network devices. Any thread may call it, one at a time.
class NetworkMetrics {
 public:
  explicit NetworkMetrics(prometheus::Registry& registry);

  // Sets all series from `report`.
  void update(const NetworkReport& report);

 private:
  prometheus::Family<prometheus::Gauge>& up_;
  prometheus::Family<prometheus::Gauge>& healthy_;
  prometheus::Family<prometheus::Gauge>& rate_;
  prometheus::Family<prometheus::Counter>& bytes_;
  prometheus::Family<prometheus::Counter>& errors_;
};

}  // namespace muster::worker
