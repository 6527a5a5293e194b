// Counters of productive and lost time of all jobs since this coordinator started, to compare
// fleets. Unlike the series of single jobs, which are removed soon after their end, these remain.
// Used on the core loop's thread.
#pragma once

#include <array>
#include <map>

#include <prometheus/counter.h>
#include <prometheus/registry.h>

#include "common/ids.h"
#include "common/time.h"
#include "coordinator/core/core.h"

namespace muster::coordinator {

class FleetGoodput {
 public:
  // Requires a `registry` that outlives it.
  explicit FleetGoodput(prometheus::Registry& registry);

  // Records the baseline: earlier time of jobs belongs to an earlier run of the coordinator. Call
  // before the first update; later calls do nothing.
  void begin(const Core& core);
  // Adds the time settled since the last update. A job that ends and is forgotten between two
  // updates is not counted further.
  void update(const Core& core, Instant now);

 private:
  std::array<std::array<prometheus::Counter*, kLossCauses>, kTimeClasses>
      lost_{};  // except productive time
  prometheus::Counter& productive_;
  std::map<JobId, LossTable> counted_;  // of the jobs that the core knows
  bool begun_ = false;
};

}  // namespace muster::coordinator
