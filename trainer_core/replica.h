// One data-parallel replica of the model: its memory plan, its memory and its operations.
#pragma once

#include <memory>

#include "trainer_core/base/memory_plan.h"
#include "trainer_core/base/train_config.h"
#include "trainer_core/checkpoint/checkpoint.h"
#include "trainer_core/model/transformer.h"
#include "trainer_core/ops/ops.h"
#include "trainer_core/optim/adamw.h"

namespace muster::trainer {

// Not movable: the model refers to the other members.
class Replica {
 public:
  Replica(const TrainConfig& config, int32_t threads)
      : plan_(plan_transformer(config.model, config.per_device_batch_size, config.max_target_length,
                               config.activation_type(), config.layer_keeps(),
                               /*training=*/true, threads)),
        arena_(plan_.memory),
        ops_(cpu_ops(threads)),
        model_(plan_, arena_, *ops_) {}
  Replica(const Replica&) = delete;
  Replica& operator=(const Replica&) = delete;

  const TransformerPlan& plan() const { return plan_; }
  const std::vector<ParamSpec>& table() const { return plan_.params; }
  Transformer& model() { return model_; }
  Ops& ops() { return *ops_; }

  CheckpointBlocks state() { return {model_.params(), block(plan_.adam_m), block(plan_.adam_v)}; }
  AdamWBlocks update_blocks() {
    return {model_.params(), model_.grads(), block(plan_.adam_m), block(plan_.adam_v)};
  }

  // The block's numbers as one flat tensor.
  static Tensor flat(std::span<float> numbers) {
    return Tensor::f32(numbers.data(), {static_cast<int64_t>(numbers.size())});
  }

 private:
  std::span<float> block(BufferId id) {
    return {arena_.f32(id), static_cast<size_t>(parameter_count(plan_.params))};
  }

  TransformerPlan plan_;
  Arena arena_;
  std::unique_ptr<Ops> ops_;
  Transformer model_;
};

}  // namespace muster::trainer
