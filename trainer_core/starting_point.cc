#include "trainer_core/starting_point.h"

#include <algorithm>

#include "trainer_core/initial_parameters.h"

namespace muster::trainer {

absl::StatusOr<RestoredAt> restore_or_begin(const TrainConfig& config, const TrainContext& context,
                                            Checkpointing& checkpoints, Replica& replica,
                                            RestoreFrom from) {
  if (config.enable_checkpointing)
    context.page.set_phase(Phase::kCheckpointRestore, monotonic_now());
  const auto newest = checkpoints.restore(from);
  if (!newest.ok()) return newest.status();
  replica.parameters_changed();
  context.page.set_phase(Phase::kCompile, monotonic_now());
  if (newest->has_value()) return **newest;
  replica.model().reset_scaling();
  std::ranges::fill(replica.state().state, 0.0F);
  const absl::Status status =
      begin_parameters(config, replica.plan().model.sharding.layout, replica.model().params(),
                       context.groups, context.out);
  if (!status.ok()) return status;
  return RestoredAt{};
}

}  // namespace muster::trainer
