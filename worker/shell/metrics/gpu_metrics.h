// GPU metrics: the latest measurements, and counters of errors. A GPU has a series for each value
// that it reports.
#pragma once

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/registry.h>

#include "common/time/time.h"
#include "worker/gpus/gpu_report.h"

namespace muster::worker {

// The Prometheus series of a node's GPUs. Any thread may call it, one at a time.
class GpuMetrics {
 public:
  explicit GpuMetrics(prometheus::Registry& registry);

  // Sets all series from `report`. `used`: the number of GPUs that ranks own.
  void update(const GpuReport& report, int32_t used, Instant now);

 private:
  using Gauges = prometheus::Family<prometheus::Gauge>;
  using Counters = prometheus::Family<prometheus::Counter>;
  void update_one(const GpuState& state);

  Gauges& gpus_;
  Gauges& used_;
  Gauges& age_;
  Gauges& info_;
  Gauges& healthy_;
  Gauges& memory_;
  Gauges& memory_used_;
  Gauges& utilization_;
  Gauges& temperature_;
  Gauges& power_;
  Gauges& clock_;
  Gauges& throttled_;
  Counters& ecc_;
  Gauges& row_remap_failed_;
  Counters& xids_;
};

}  // namespace muster::worker
