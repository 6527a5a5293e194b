// Counters of the productive and lost time of all jobs since this coordinator started, to compare
// fleets. The series of a single job are removed soon after its end; these counters remain. Used on
// the core loop's thread.
#pragma once

#include <array>
#include <map>

#include <prometheus/counter.h>
#include <prometheus/registry.h>

#include "common/job/ids.h"
#include "common/time/time.h"
#include "coordinator/core/core.h"

namespace muster::coordinator {

class FleetGoodput {
 public:
  // Requires that `registry` outlives this object.
  explicit FleetGoodput(prometheus::Registry& registry);

  // Records the baseline, because the earlier time of jobs belongs to an earlier run of the
  // coordinator. Call it before the first update; later calls have no effect.
  void begin(const Core& core);
  // Adds the time whose class became final (Account::settled) since the last update. Does not count
  // the last part of a job that ends and is deleted between two updates.
  void update(const Core& core, Instant now);

 private:
  // Counters of lost time by class and cause. The row of productive time is not used.
  std::array<std::array<prometheus::Counter*, kLossCauses>, kTimeClasses> lost_{};
  prometheus::Counter& productive_;
  std::map<JobId, LossTable> counted_;  // the time already counted of each job in the core
  bool begun_ = false;
};

}  // namespace muster::coordinator
