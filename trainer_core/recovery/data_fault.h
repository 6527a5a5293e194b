// The protocol for a rank that cannot read its data. Other ranks wait for its part of every pass
// and collective, so it continues with blank batches and reports the fault in the sums that follow
// (step_tail.h). All ranks learn of it at the same point, and leave with the state before the step,
// which they can still save.
#pragma once

#include <cstdint>

#include <absl/status/status.h>

#include "trainer_core/input/step_data.h"
#include "trainer_core/rank/step_tail.h"

namespace muster::trainer {

// Covers the passes between two reductions. Called on one thread only.
class DataFault {
 public:
  // Returns data.load()'s batch, or a blank one after an error.
  Batch load(StepData& data, uint64_t first, int32_t micro_batch);
  void vote(int rank, StepTail& mine) const;
  // Returns the rank's own error, or Unavailable that names the rank that has one. All ranks agree
  // on whether it is OK.
  absl::Status verdict(const StepTail& reduced) const;

 private:
  absl::Status own_;  // the first error
};

}  // namespace muster::trainer
