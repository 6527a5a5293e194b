// The protocol for a rank that cannot read its data. Other ranks wait for this rank's part of every
// pass and collective, so it continues with blank batches and reports the fault in the next reduced
// sums (step_tail.h). All ranks then receive the fault at the same point and end the training with
// the state before the step, which they can still save.
#pragma once

#include <cstdint>

#include <absl/status/status.h>

#include "trainer_core/input/step_data.h"
#include "trainer_core/rank/step_tail.h"

namespace muster::trainer {

// The faults of one step or evaluation. Called on one thread only.
class DataFault {
 public:
  // Returns the batch of data.load(), or a blank batch after an error.
  Batch load(StepData& data, uint64_t first, int32_t micro_batch);
  // Adds this rank's fault, if any, to the values that the step reduces.
  void vote(int rank, StepTail& mine) const;
  // Returns the error of this rank or, if only other ranks have errors, Unavailable with such a
  // rank. Either all ranks get OK or none.
  absl::Status verdict(const StepTail& reduced) const;

 private:
  absl::Status own_;  // the first error of this rank
};

}  // namespace muster::trainer
