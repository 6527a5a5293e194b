// A rank that cannot read its data. Other ranks wait for its part of every pass and sum, so its passes go on with blank batches, and
// it says so in the sums behind them (step_tail.h): all ranks hear of it at the same place, and leave with the state that they had
// before, which they can still save.
#pragma once

#include <cstdint>

#include <absl/status/status.h>

#include "trainer_core/input/step_data.h"
#include "trainer_core/rank/step_tail.h"

namespace muster::trainer {

// Of the passes between two sums. One thread.
class DataFault {
 public:
  // What data.load() gives, or a blank batch.
  Batch load(StepData& data, uint64_t first, int32_t micro_batch);
  void vote(int rank, StepTail& mine) const;
  // What the sums say of it: the rank's own error, or Unavailable that names the rank that has one. The same on all ranks is
  // whether it is OK.
  absl::Status verdict(const StepTail& reduced) const;

 private:
  absl::Status own_;  // the first
};

}  // namespace muster::trainer
