#include "trainer_core/recovery/data_fault.h"

#include <absl/strings/str_cat.h>

namespace muster::trainer {

Batch DataFault::load(StepData& data, uint64_t first, int32_t micro_batch) {
  const auto batch = data.load(first, micro_batch);
  if (batch.ok()) return *batch;
  own_.Update(batch.status());
  return data.blank();
}

void DataFault::vote(int rank, StepTail& mine) const {
  if (own_.ok()) return;
  mine.data_faults = 1;
  mine.data_fault_rank_sum = rank;
}

absl::Status DataFault::verdict(const StepTail& reduced) const {
  if (reduced.data_faults == 0 || !own_.ok()) return own_;
  return absl::UnavailableError(
      reduced.data_faults == 1
          ? absl::StrCat("rank ", reduced.data_fault_rank_sum, " cannot read it; see its log")
          : absl::StrCat(reduced.data_faults, " ranks cannot read it; see their logs"));
}

}  // namespace muster::trainer
