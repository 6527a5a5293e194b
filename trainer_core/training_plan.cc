#include "trainer_core/training_plan.h"

#include <utility>

namespace muster::trainer {

CheckpointLayout checkpoint_layout(const std::vector<ParamSpec>& table,
                                   const Optimizer& optimizer) {
  return {.params = rows_of(table),
          .optimizer = std::string(optimizer.name()),
          .state = optimizer.state()};
}

CheckpointLayout TrainingPlan::checkpoint_layout() const {
  return trainer::checkpoint_layout(model.params, *optimizer);
}

TrainingPlan plan_training(const TrainConfig& config, int32_t threads) {
  TransformerPlan model =
      plan_transformer(config.model, config.per_device_batch_size, config.max_target_length,
                       config.remat_policy, /*training=*/true, threads);
  auto optimizer = Optimizer::make(config.optimizer, model.params);
  const BufferId state =
      model.memory.add("optimizer_state", MemoryCategory::kOptimizer,
                       static_cast<size_t>(optimizer->state_elements()) * sizeof(float));
  return {std::move(model), std::move(optimizer), state};
}

}  // namespace muster::trainer
