#include "trainer_core/starting_point.h"

#include <algorithm>

#include "trainer_core/initial_parameters.h"

namespace muster::trainer {

absl::StatusOr<RestoredAt> restore_or_begin(const TrainConfig& config, const TrainContext& context,
                                            Checkpointing& checkpoints, Replica& replica,
                                            RestoreFrom from) {
  if (config.enable_checkpointing) enter_phase(context, Phase::kCheckpointRestore);
  const auto newest = checkpoints.restore(from);
  if (!newest.ok()) return newest.status();
  replica.parameters_changed();
  enter_phase(context, Phase::kCompile);
  if (newest->has_value()) {
    replica.store_state();
    return **newest;
  }
  const CheckpointBlocks state = replica.host_state();
  std::ranges::fill(state.state, 0.0F);
  const auto params = state.params.first(replica.model().params().size());
  const absl::Status status = begin_parameters(config, replica.plan().model.sharding.layout, params,
                                               context.groups, context.out);
  if (!status.ok()) return status;
  replica.store_state();
  replica.model().reset_scaling();
  return RestoredAt{};
}

}  // namespace muster::trainer
