// Where a training begins, and begins again after a rollback.
#pragma once

#include <absl/status/statusor.h>

#include "trainer_core/agreement.h"
#include "trainer_core/checkpointing.h"
#include "trainer_core/replica.h"
#include "trainer_core/train.h"

namespace muster::trainer {

// Brings parameters and state to those of the newest checkpoint, or of the beginning, on all ranks. Errors are Checkpointing::restore's
// and begin_parameters'.
absl::StatusOr<RestoredAt> restore_or_begin(const TrainConfig& config, const TrainContext& context,
                                            Checkpointing& checkpoints, Replica& replica,
                                            RestoreFrom from);

}  // namespace muster::trainer
