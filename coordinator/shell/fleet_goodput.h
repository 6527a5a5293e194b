// Where the time of all jobs went since this coordinator was started, as counters: what fleets are compared by. Series of single jobs go soon
// after their end; these stay. On the core loop's thread.
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
  // `registry` outlives it.
  explicit FleetGoodput(prometheus::Registry& registry);

  // Before the first update: what jobs had behind them before belongs to an earlier life of the coordinator. Later calls do nothing.
  void begin(const Core& core);
  // What is settled since. A job that ends and is forgotten between two updates is not counted further.
  void update(const Core& core, Instant now);

 private:
  std::array<std::array<prometheus::Counter*, kLossCauses>, kTimeClasses>
      lost_{};  // but for the productive time
  prometheus::Counter& productive_;
  std::map<JobId, LossTable> counted_;  // of the jobs that the core knows
  bool begun_ = false;
};

}  // namespace muster::coordinator
