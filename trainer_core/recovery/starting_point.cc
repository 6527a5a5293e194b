#include "trainer_core/recovery/starting_point.h"

#include <algorithm>

#include "trainer_core/startup/initial_parameters.h"

namespace muster::trainer {

absl::StatusOr<RestoredAt> restore_or_begin(const TrainConfig& config, const TrainContext& context,
                                            Checkpointing& checkpoints, RankModel& rank_model,
                                            RestoreFrom from) {
  if (config.enable_checkpointing) enter_phase(context, Phase::kCheckpointRestore);
  const auto newest = checkpoints.restore(from);
  if (!newest.ok()) return newest.status();
  rank_model.parameters_changed();
  enter_phase(context, Phase::kCompile);
  if (newest->has_value()) {
    rank_model.store_state();
    return **newest;
  }
  const CheckpointBlocks state = rank_model.host_state();
  std::ranges::fill(state.state, 0.0F);
  const auto params = state.params.first(rank_model.model().params().size());
  const absl::Status status = begin_parameters(config, rank_model.plan().model.sharding.layout,
                                               params, context.groups, context.out);
  if (!status.ok()) return status;
  rank_model.store_state();
  rank_model.model().reset_scaling();
  return RestoredAt{};
}

}  // namespace muster::trainer
