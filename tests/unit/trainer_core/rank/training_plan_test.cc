#include "trainer_core/rank/training_plan.h"

#include <gmock/gmock.h>

#include "tests/unit/trainer_core/train_helpers.h"
#include "trainer_core/base/train_mesh.h"

namespace muster::trainer {
namespace {

size_t optimizer_bytes(OptimizerType type, ComputeType mu = ComputeType::kFloat32) {
  TrainConfig config = tiny_config(1);
  config.optimizer.type = type;
  config.optimizer.mu_dtype = mu;
  const TrainingPlan plan = plan_training(config, 1, Staging::kNo);
  EXPECT_EQ(plan.memory().category_bytes(MemoryCategory::kOptimizer),
            static_cast<size_t>(plan.optimizer->state_elements()) * sizeof(float));
  return plan.memory().category_bytes(MemoryCategory::kOptimizer);
}

TEST(TrainingPlan, HasExactlyTheOptimizersState) {
  const auto n = static_cast<size_t>(parameter_count(model_params(tiny_config(1).model)));
  EXPECT_EQ(optimizer_bytes(OptimizerType::kAdamW), 8 * n);
  EXPECT_EQ(optimizer_bytes(OptimizerType::kAdamPax), 8 * n);
  EXPECT_EQ(optimizer_bytes(OptimizerType::kAdamW, ComputeType::kBfloat16),
            4 * n + 4 * ((n + 1) / 2));
  EXPECT_EQ(optimizer_bytes(OptimizerType::kSgd), 0U);
  EXPECT_EQ(optimizer_bytes(OptimizerType::kAdafactor), 4 * n);  // no matrix is large enough
}

// Parameters, their copy and their checkpoint take half; gradients and the second moment do not.
TEST(TrainingPlan, WeightsOfBf16TakeHalf) {
  TrainConfig config = tiny_config(1);
  config.enable_checkpointing = true;
  config.dtype = config.weight_dtype = config.optimizer.mu_dtype = ComputeType::kBfloat16;
  const TrainingPlan plan = plan_training(config, 1, Staging::kYes);
  const auto n = static_cast<size_t>(parameter_count(plan.model.params));
  const auto bytes = [&](MemoryCategory category) {
    return plan.memory().category_bytes(category);
  };
  ASSERT_EQ(n % 2, 0U);
  EXPECT_EQ(bytes(MemoryCategory::kParameters), 2 * n);
  EXPECT_EQ(bytes(MemoryCategory::kGradients), 4 * n);
  EXPECT_EQ(bytes(MemoryCategory::kOptimizer), (2 + 4) * n);
  EXPECT_EQ(bytes(MemoryCategory::kCheckpoint), (2 + 2 + 4) * n);
  EXPECT_EQ(plan.checkpoint_layout().bytes(), (2 + 2 + 4) * n);
  // The vectors of the end, and of two layers, as passes read them.
  const auto width = static_cast<size_t>(config.model.emb_dim);
  EXPECT_EQ(bytes(MemoryCategory::kGathered), (1 + 2 + 2) * width * sizeof(float));
}

TEST(TrainingPlan, OnlyWritersPlanACopyOfTheState) {
  TrainConfig many = tiny_config(4);
  many.enable_checkpointing = true;
  EXPECT_EQ(staging_of(many, 0), Staging::kYes);
  EXPECT_EQ(staging_of(many, 1), Staging::kNo) << "it has what rank 0 has";
  many.mesh.ici = {2, 1, 2, 1, 1, 1, 1};
  EXPECT_EQ(staging_of(many, 1), Staging::kYes);
  EXPECT_EQ(staging_of(many, 2), Staging::kNo);
  TrainConfig config = tiny_config(1);
  config.enable_checkpointing = true;
  const TrainingPlan plan = plan_training(config, 1, staging_of(config, 0));
  EXPECT_EQ(plan.memory().category_bytes(MemoryCategory::kCheckpoint),
            plan.checkpoint_layout().bytes());
  EXPECT_EQ(
      plan.memory().total_bytes() - plan_training(config, 1, Staging::kNo).memory().total_bytes(),
      aligned_bytes(plan.checkpoint_layout().bytes()));
  config.async_checkpointing = false;
  EXPECT_EQ(staging_of(config, 0), Staging::kNo);
}

TEST(TrainingPlan, FactorsOfALargeModelAreSmall) {
  TrainConfig config = tiny_config(1);
  config.model.emb_dim = 4096;
  config.model.mlp_dim = 11'008;
  config.model.vocab_size = 32'000;
  config.model.num_query_heads = config.model.num_kv_heads = 32;
  config.model.head_dim = 128;
  config.optimizer.type = OptimizerType::kAdafactor;
  const TrainingPlan plan = plan_training(config, 1, Staging::kNo);
  const double parameters = static_cast<double>(parameter_count(plan.model.params));
  EXPECT_LT(static_cast<double>(plan.optimizer->state_elements()), 1e-3 * parameters);
}

TEST(TrainingPlan, ACheckpointHasTheParametersAndTheState) {
  TrainConfig config = tiny_config(1);
  config.optimizer.type = OptimizerType::kAdamPax;
  const TrainingPlan plan = plan_training(config, 1, Staging::kNo);
  const CheckpointLayout layout = plan.checkpoint_layout();
  EXPECT_EQ(layout.optimizer, "adam_pax");
  ASSERT_EQ(layout.params.tensors.size(), plan.model.params.size());
  EXPECT_EQ(layout.params.tensors[1].name, plan.model.params[1].name);
  EXPECT_EQ(layout.params.tensors[1].offset, plan.model.params[1].offset);
  EXPECT_EQ(layout.state.tensors.size(), 2 * layout.params.tensors.size());
}

// A GPU computes logits of thousands of rows at a time, and has scratch to round them and the
// largest fp32 matrix for one GEMM.
TEST(TrainingPlan, AGpuComputesLargerGemms) {
  TrainConfig config = tiny_config(1);
  config.model.vocab_size = 32'000;
  config.model.emb_dim = 4096;
  config.model.mlp_dim = 11'008;
  config.max_target_length = 4096;
  EXPECT_EQ(plan_training(config, 1, Staging::kNo).model.head_rows, 131);
  config.hardware = Hardware::kGpu;
  const TrainingPlan plan = plan_training(config, 1, Staging::kNo);
  EXPECT_EQ(plan.model.head_rows, 2097);
  EXPECT_LT(gpu_scratch_bytes(config), size_t{96} << 20);
  config.dtype = ComputeType::kBfloat16;
  EXPECT_GT(gpu_scratch_bytes(config), size_t{32'000} * 4096 * 2 + (size_t{60} << 20));
  config.model.vocab_size = 1 << 22;
  EXPECT_EQ(gpu_scratch_bytes(config), size_t{2} << 30);
}

// cuDNN's backward pass stores a bf16 value for each pair of positions: for as many heads and
// sequences at a time as 512 MiB hold, and for the heads of at least one key head.
TEST(TrainingPlan, TheScratchHasRoomForAttentionsBackwardPass) {
  constexpr size_t kMiB = size_t{1} << 20, kRest = 64 * kMiB;
  TrainConfig config = tiny_config(1);
  config.dtype = ComputeType::kBfloat16;
  config.model.num_query_heads = config.model.num_kv_heads = 8;
  config.model.head_dim = 64;
  config.max_target_length = 2048;
  config.per_device_batch_size = 4;
  const size_t small = gpu_scratch_bytes(config);  // the whole shape: 64 MiB per sequence, and sums
  EXPECT_GT(small, kRest + 256 * kMiB);
  EXPECT_LT(small, kRest + 260 * kMiB);
  config.per_device_batch_size = 64;
  EXPECT_EQ(gpu_scratch_bytes(config), kRest + kGpuAttentionBytes);
  config.max_target_length = 8192;  // 128 MiB per head
  EXPECT_EQ(gpu_scratch_bytes(config), kRest + kGpuAttentionBytes);
  config.model.num_kv_heads = 1;  // 1 GiB for the query heads of one key head
  EXPECT_GT(gpu_scratch_bytes(config), kRest + (size_t{1} << 30));
  // The built-in kernels compute a part that exceeds the scratch, and packed sequences.
  config.max_target_length = 16'384;
  EXPECT_LT(gpu_scratch_bytes(config), kRest + kGpuAttentionBytes);
  config.max_target_length = 2048;
  config.dataset_type = DatasetType::kShards;
  config.packing = true;
  EXPECT_LT(gpu_scratch_bytes(config), kRest + kGpuAttentionBytes);
}

// An evaluation alone has the weights and the buffers of a forward pass, on every mesh.
TEST(TrainingPlan, AnEvaluationHasNoMemoryOfTraining) {
  TrainConfig config = tiny_config(1);
  config.model.num_layers = 4;
  config.model.num_kv_heads = 4;
  config.per_device_batch_size = 4;
  TrainConfig evaluation = config;
  evaluation.steps = 0;
  evaluation.eval.interval = 1;
  ASSERT_FALSE(config.only_evaluates());
  ASSERT_TRUE(evaluation.only_evaluates());
  for (size_t a = 0; a < kMeshAxisCount; ++a) {
    SCOPED_TRACE(a);
    const auto on_axis = [&](TrainConfig changed) {
      if (static_cast<MeshAxis>(a) == MeshAxis::kExpert) return changed;  // a dense model
      changed.mesh.ici[a] = 2;
      if (static_cast<MeshAxis>(a) == MeshAxis::kPipeline) changed.pipeline_microbatches = 2;
      return changed;
    };
    for (int32_t rank = 0; rank < mesh_of(on_axis(config).mesh).ranks(); ++rank) {
      const MemoryPlan training = plan_training(on_axis(config), 1, Staging::kNo, rank).memory();
      const MemoryPlan plan = plan_training(on_axis(evaluation), 1, Staging::kNo, rank).memory();
      for (const MemoryCategory category :
           {MemoryCategory::kGradients, MemoryCategory::kOptimizer, MemoryCategory::kActivations,
            MemoryCategory::kOffloaded})
        EXPECT_EQ(plan.category_bytes(category), 0U);
      EXPECT_EQ(plan.category_bytes(MemoryCategory::kParameters),
                training.category_bytes(MemoryCategory::kParameters));
      EXPECT_LE(plan.category_bytes(MemoryCategory::kWorkspace),
                training.category_bytes(MemoryCategory::kWorkspace) +
                    training.category_bytes(MemoryCategory::kActivations));
    }
  }
}

}  // namespace
}  // namespace muster::trainer
