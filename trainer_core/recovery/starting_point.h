// Sets the state from which training begins, at the start and after a rollback.
#pragma once

#include <absl/status/statusor.h>

#include "trainer_core/rank/rank_model.h"
#include "trainer_core/rank/train_context.h"
#include "trainer_core/recovery/checkpointing.h"
#include "trainer_core/startup/agreement.h"

namespace muster::trainer {

// Sets parameters and optimizer state on all ranks to those of the newest checkpoint, or to the
// initial values if there is no checkpoint. Returns the position in the training, which for an
// evaluation (config.only_evaluates()) is that of the loaded parameters, or the errors of
// Checkpointing::restore() and load_parameters().
absl::StatusOr<RestoredAt> restore_or_begin(const TrainConfig& config, const TrainContext& context,
                                            Checkpointing& checkpoints, RankModel& rank_model,
                                            RestoreFrom from);

}  // namespace muster::trainer
