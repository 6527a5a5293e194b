// A rank's memory is its plan's to the byte, whatever it shares.
#include <algorithm>
#include <cstring>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

#include "tests/unit/sanitized.h"
#include "tests/unit/trainer_core/model/sharded_models.h"
#include "tests/unit/trainer_core/model/untouched_words.h"
#include "tests/unit/trainer_core/on_mesh.h"
#include "tests/unit/trainer_core/parallel/mesh_trainer.h"
#include "trainer_core/base/train_mesh.h"
#include "trainer_core/input/step_data.h"
#include "trainer_core/parallel/group_sums.h"
#include "trainer_core/parallel/mesh_exchange.h"
#include "trainer_core/parallel/sharded_parameters.h"
#include "trainer_core/rank/training_plan.h"

namespace muster::trainer {
namespace {

constexpr int32_t kLength = 132;  // long enough for all of the workspace

TrainConfig config_of(const ModelConfig& model, int32_t fsdp, int32_t zero_stage) {
  TrainConfig config;
  config.model = model;
  config.model.num_layers = 4;
  config.model.trainable_position_size = kLength;
  config.mesh.ici[static_cast<size_t>(MeshAxis::kFsdp)] = fsdp;
  config.zero_stage = zero_stage;
  config.per_device_batch_size = 1;
  config.max_target_length = kLength;
  return config;
}

// Two passes of a step, and its update.
void run_step(const TrainConfig& config, ProcessGroups& groups) {
  const TrainingPlan plan = plan_training(config, 1, Staging::kNo, groups.rank());
  Arena arena(plan.memory());
  std::ranges::fill(words_of(arena), kUntouched);
  const auto ops = cpu_ops(1);
  ShardedParameters parameters(plan.model, arena, *ops, &groups);
  std::optional<MeshExchange> exchange;
  if (plan.model.part().exchanges()) exchange.emplace(plan.model, arena, *ops, groups);
  Transformer model(plan.model, arena, *ops, &parameters, exchange ? &*exchange : nullptr);
  const std::span<float> state = {arena.f32(plan.model.optimizer_state),
                                  static_cast<size_t>(plan.optimizer->state_elements())};
  // Initialises the parameters; their values do not matter.
  ops->fill(model.parameters(), 0);
  if (config.model.lora.enabled()) {
    ops->fill(model.frozen_parameters(), 0);
    const WeightBlocks blocks = weight_blocks(plan.model, arena);
    std::memset(blocks.codes.data, 0, blocks.codes.bytes());
    ops->fill(blocks.scales, 0);
  }
  std::ranges::fill(state, 0.0F);
  TrainingData read = config.packed() ? packed_documents(config) : TrainingData();
  const auto data = StepData::training(config, groups.rank(), read);
  for (const bool last : {false, true}) {
    parameters.begin({.first = !last, .last = last});
    const auto batch = data->load(0, 0);
    ASSERT_TRUE(batch.ok()) << batch.status();
    model.forward_backward(*batch, last ? Accumulate::kYes : Accumulate::kNo);
  }
  ASSERT_TRUE(parameters.finish().ok());
  GroupSums sums(groups);
  ASSERT_TRUE(
      plan.optimizer
          ->update(*ops, {.learning_rate = 1e-3}, {model.parameters(), model.grads(), state}, &sums)
          .ok());
  // A bf16 tile takes less than its slots.
  if (config.dtype == ComputeType::kBfloat16) {
    std::span<float> workspace = {arena.f32(plan.model.workspace),
                                  static_cast<size_t>(plan.model.workspace_elements)};
    std::ranges::fill(workspace, 0.0F);
  }
  expect_planned_words_written(
      plan.memory(), words_of(arena),
      absl::StrCat(config.model.name, " zero_stage=", config.zero_stage, " rank=", groups.rank()));
}

TEST(ShardedMemory, IsThePlansToTheByte) {
  for (const ModelConfig& model : {sharded_llama(), sharded_gpt(), sharded_glam()}) {
    for (int32_t zero_stage = 1; zero_stage <= 3; ++zero_stage) {
      const TrainConfig config = config_of(model, 3, zero_stage);
      on_mesh(mesh_of(config.mesh), [&](ProcessGroups& groups) { run_step(config, groups); });
      ASSERT_FALSE(HasFailure());
    }
  }
}

// Slots of vectors, and with activations of fp32 those of everything, on one rank and on several.
// Buckets are multiples of a cache line, without gaps between them.
TEST(ShardedMemory, IsThePlansToTheByteWithWeightsOfBf16) {
  for (const ModelConfig& model : {sharded_llama(), sharded_gpt(), sharded_glam()}) {
    for (const ComputeType dtype : {ComputeType::kBfloat16, ComputeType::kFloat32}) {
      for (const auto& [fsdp, zero_stage] : {std::pair{1, 3}, {1, 1}, {4, 1}, {4, 2}, {4, 3}}) {
        TrainConfig config = config_of(model, fsdp, zero_stage);
        config.model.vocab_size = config.model.mlp_dim = 64;
        config.model.emb_dim = 16, config.model.head_dim = 8;
        if (config.model.relative_buckets.exist()) config.model.relative_buckets.count = 8;
        if (config.model.experts.count > 1) config.model.experts.mlp_dim = 64;
        config.dtype = dtype;
        config.weight_dtype = ComputeType::kBfloat16;
        on_mesh(mesh_of(config.mesh), [&](ProcessGroups& groups) { run_step(config, groups); });
        ASSERT_FALSE(HasFailure()) << fsdp << " ranks, dtype " << name_of(kComputeTypeNames, dtype);
      }
    }
  }
}

// Frozen matrices in blocks, on one rank and on several. Buckets are multiples of a cache line.
TEST(ShardedMemory, IsThePlansToTheByteWithFrozenWeightsInBlocks) {
  using enum MeshAxis;
  for (const ComputeType dtype : {ComputeType::kBfloat16, ComputeType::kFloat32}) {
    for (const WeightType type : {WeightType::kNf4, WeightType::kInt8}) {
      for (const auto& [axis, degree] : {std::pair{kData, 1}, {kFsdp, 4}, {kTensor, 2}}) {
        TrainConfig config = config_of(sharded_llama(), 1, 3);
        config.mesh.ici[static_cast<size_t>(axis)] = degree;
        config.model.vocab_size = config.model.emb_dim = 64;
        config.model.mlp_dim = 256, config.model.head_dim = 32;
        config.model.lora = {.rank = 16,
                             .alpha = 16,
                             .targets = lora_targets(config.model, LoraLayers::kAll),
                             .weight_type = type};
        config.dtype = dtype;
        ASSERT_TRUE(validate_on_mesh(config).ok());
        on_mesh(mesh_of(config.mesh), [&](ProcessGroups& groups) { run_step(config, groups); });
        ASSERT_FALSE(HasFailure())
            << mesh_of(config.mesh).to_string() << " dtype " << name_of(kComputeTypeNames, dtype);
      }
    }
  }
}

// A KV head on two ranks, and ranks with more ids than others. Buckets are multiples of a cache
// line, without gaps between them.
TEST(ShardedMemory, IsThePlansToTheByteWhereRanksSplitRows) {
  for (ModelConfig model : {sharded_llama(), sharded_gpt(), sharded_glam()}) {
    for (const RematPolicy policy : {RematPolicy::kFull, RematPolicy::kNone}) {
      TrainConfig config = config_of(model, 1, 3);
      config.mesh.ici[static_cast<size_t>(MeshAxis::kTensor)] = 4;
      config.model.qkv_bias = true;
      config.model.emb_dim = 16, config.model.head_dim = 8, config.model.mlp_dim = 64;
      if (config.model.relative_buckets.exist()) config.model.relative_buckets.count = 8;
      if (config.model.experts.count > 1) config.model.experts.mlp_dim = 64;
      config.remat_policy = policy;
      on_mesh(mesh_of(config.mesh), [&](ProcessGroups& groups) { run_step(config, groups); });
      ASSERT_FALSE(HasFailure());
    }
  }
}

// Sequences with equally many attention tiles on each rank.
TEST(ShardedMemory, IsThePlansToTheByteWhereRanksSplitSequences) {
  using enum MeshAxis;
  using Degrees = std::vector<std::pair<MeshAxis, int32_t>>;
  for (ModelConfig model : {sharded_llama(), sharded_gpt(), sharded_glam()}) {
    for (const Degrees& degrees : {Degrees{{kContext, 4}}, Degrees{{kSequence, 4}},
                                   Degrees{{kSequence, 2}, {kContext, 2}, {kTensor, 2}}}) {
      TrainConfig config = config_of(model, 1, 3);
      for (const auto& [axis, degree] : degrees)
        config.mesh.ici[static_cast<size_t>(axis)] = degree;
      config.max_target_length = config.model.trainable_position_size = 512;
      config.dataset_type = DatasetType::kShards;
      config.model.num_kv_heads = 4;
      config.model.emb_dim = 16, config.model.head_dim = 8, config.model.mlp_dim = 64;
      if (config.model.relative_buckets.exist()) config.model.relative_buckets.count = 8;
      if (config.model.experts.count > 1) {
        config.model.experts.mlp_dim = 64;
        config.model.experts.balance_weight = 0.1;
      }
      config.dtype = model.name == "llama" ? ComputeType::kBfloat16 : ComputeType::kFloat32;
      on_mesh(mesh_of(config.mesh), [&](ProcessGroups& groups) { run_step(config, groups); });
      ASSERT_FALSE(HasFailure()) << mesh_of(config.mesh).to_string();
    }
  }
}

// Every token chooses every expert, so that as many rows come as can come.
TEST(ShardedMemory, IsThePlansToTheByteWhereRanksShareExperts) {
  using enum MeshAxis;
  using Degrees = std::vector<std::pair<MeshAxis, int32_t>>;
  for (const Degrees& degrees : {Degrees{{kExpert, 2}}, Degrees{{kExpert, 4}, {kTensor, 2}},
                                 Degrees{{kFsdp, 2}, {kExpert, 2}}}) {
    for (const RematPolicy policy :
         {RematPolicy::kFull, RematPolicy::kNone, RematPolicy::kMinimalOffloaded}) {
      TrainConfig config = config_of(sharded_glam(), 1, 3);
      for (const auto& [axis, degree] : degrees)
        config.mesh.ici[static_cast<size_t>(axis)] = degree;
      config.model.emb_dim = 16, config.model.head_dim = 8, config.model.mlp_dim = 64;
      ExpertConfig& experts = config.model.experts;
      experts.count = experts.per_token = 4;
      experts.mlp_dim = 64;
      experts.balance_weight = 0.1;
      config.remat_policy = policy;
      config.dtype = policy == RematPolicy::kNone ? ComputeType::kBfloat16 : ComputeType::kFloat32;
      on_mesh(mesh_of(config.mesh), [&](ProcessGroups& groups) { run_step(config, groups); });
      ASSERT_FALSE(HasFailure()) << mesh_of(config.mesh).to_string();
    }
  }
}

// Matrices are wide enough for factored moments. Buckets are multiples of a cache line, without
// gaps between them.
TEST(ShardedMemory, IsThePlansToTheByteWithEachOptimizerAndPolicy) {
  using enum MeshAxis;
  int combination = 0;
  for (ModelConfig model : {sharded_llama(), sharded_gpt(), sharded_glam()}) {
    model.emb_dim = model.mlp_dim = model.vocab_size = 128;
    model.head_dim = 8;
    if (model.relative_buckets.exist()) model.relative_buckets.count = 8;
    if (model.experts.count > 1) model.experts.mlp_dim = 128;
    for (size_t type = 0; type < kOptimizerNames.size(); ++type) {
      for (const RematPolicy policy :
           {RematPolicy::kFull, RematPolicy::kMinimal, RematPolicy::kNone,
            RematPolicy::kQkvProjOffloaded, RematPolicy::kMinimalOffloaded}) {
        for (const MeshAxis axis : {kFsdp, kTensor, kData}) {
          if (kSanitized && ++combination % 23 != 0) continue;
          TrainConfig config = config_of(model, 1, 3);
          config.mesh.ici[static_cast<size_t>(axis)] = 2;
          config.optimizer.type = static_cast<OptimizerType>(type);
          config.remat_policy = policy;
          on_mesh(mesh_of(config.mesh), [&](ProcessGroups& groups) { run_step(config, groups); });
          ASSERT_FALSE(HasFailure())
              << kOptimizerNames[type] << " on " << mesh_of(config.mesh).to_string()
              << " with policy " << kRematPolicyNames[static_cast<size_t>(policy)];
        }
      }
    }
  }
}

size_t category(const TrainConfig& config, MemoryCategory category) {
  return plan_training(config, 1, Staging::kNo).memory().category_bytes(category);
}

// Each stage's share, for a model large enough that padding and alignment do not matter.
TEST(ShardedMemory, StagesStoreTheirShares) {
  ModelConfig model = sharded_llama();
  model.emb_dim = 96;
  const TrainConfig alone = config_of(model, 1, 3);
  const auto whole = static_cast<double>(category(alone, MemoryCategory::kParameters));
  EXPECT_EQ(category(alone, MemoryCategory::kGathered), 0U);
  const auto share = [&](int32_t zero_stage, MemoryCategory what) {
    return static_cast<double>(category(config_of(model, 8, zero_stage), what)) / whole;
  };
  for (int32_t zero_stage = 1; zero_stage <= 3; ++zero_stage) {
    EXPECT_NEAR(share(zero_stage, MemoryCategory::kParameters), 1.0 / 8, 1e-3);
    EXPECT_NEAR(share(zero_stage, MemoryCategory::kOptimizer), 2.0 / 8, 1e-3);
  }
  EXPECT_NEAR(share(1, MemoryCategory::kGradients), 1 + 1.0 / 8, 1e-2);
  EXPECT_NEAR(share(1, MemoryCategory::kGathered), 1, 1e-2);
  EXPECT_NEAR(share(2, MemoryCategory::kGathered), 1, 1e-2);
  // The embedding or the end, and two of four layers.
  EXPECT_LT(share(3, MemoryCategory::kGathered), 0.6);
  EXPECT_LT(share(2, MemoryCategory::kGradients), 0.7);
  EXPECT_EQ(share(2, MemoryCategory::kGradients), share(3, MemoryCategory::kGradients));

  // A rank stores half as weights of bf16, and gathers in the type of activations.
  TrainConfig weights = config_of(model, 8, 3);
  weights.weight_dtype = ComputeType::kBfloat16;
  EXPECT_NEAR(static_cast<double>(category(weights, MemoryCategory::kParameters)) / whole, 1.0 / 16,
              1e-3);
  EXPECT_EQ(static_cast<double>(category(weights, MemoryCategory::kGathered)) / whole,
            share(3, MemoryCategory::kGathered));

  // Frozen matrices of nf4 have half a byte per parameter, and a scale of four bytes for 64.
  TrainConfig blocks = alone;
  blocks.model.emb_dim = 64;
  blocks.model.mlp_dim = 256;
  blocks.model.lora = {
      .rank = 1, .alpha = 1, .targets = {"q_proj"}, .weight_type = WeightType::kNf4};
  const TrainingPlan plan = plan_training(blocks, 1, Staging::kNo);
  size_t stored = 0;
  for (const PlannedBuffer& buffer : plan.memory().buffers())
    if (buffer.name == "frozen.codes" || buffer.name == "frozen.scales") stored += buffer.bytes;
  const int64_t matrices = parameter_count(plan.model.sharding.quantized.table());
  EXPECT_EQ(matrices, 4 * (64 * (8 + 2 + 2 + 8) * 2 + 3 * 64 * 256));
  EXPECT_EQ(stored, static_cast<size_t>(matrices) * 9 / 16);

  TrainConfig bf16 = config_of(model, 8, 3);
  bf16.dtype = ComputeType::kBfloat16;
  EXPECT_NEAR(static_cast<double>(category(bf16, MemoryCategory::kGathered)) / whole,
              share(3, MemoryCategory::kGathered) / 2, 1e-2);
}

}  // namespace
}  // namespace muster::trainer
