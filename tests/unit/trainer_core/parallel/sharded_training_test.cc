// Whatever ranks share of the parameters, they train as one rank does.
#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <latch>

#include "tests/unit/trainer_core/model/sharded_models.h"
#include "tests/unit/trainer_core/parallel/mesh_trainer.h"

namespace muster::trainer {
namespace {

constexpr auto kData = static_cast<size_t>(MeshAxis::kData);
constexpr auto kFsdp = static_cast<size_t>(MeshAxis::kFsdp);

// 8 sequences of 7 tokens a micro-batch, on any number of ranks that divides 8.
TrainConfig sharded_config(const ModelConfig& model, int32_t data, int32_t fsdp) {
  TrainConfig config;
  config.model = model;
  config.model.num_layers = 3;
  config.steps = 20;
  config.optimizer.learning_rate = 3e-3;
  // Some gradients, such as those of the keys' biases, consist only of rounding errors.
  config.optimizer.eps = 1e-5;
  config.optimizer.schedule_steps = 20;
  config.optimizer.warmup_steps = 2;
  config.mesh.ici[kData] = data;
  config.mesh.ici[kFsdp] = fsdp;
  config.per_device_batch_size = kMeshRanks / (data * fsdp);
  config.max_target_length = 7;
  return config;
}

// The special property of each model's step.
struct ShardedCase {
  const char* name;
  void (*change)(TrainConfig& config);
  ModelConfig (*model)();

  friend void PrintTo(const ShardedCase& test, std::ostream* out) { *out << test.name; }
};
const ShardedCase kShardedCases[] = {
    {"llama", [](TrainConfig&) {}, sharded_llama},
    {"gpt_accumulated",
     [](TrainConfig& config) {
       config.gradient_accumulation_steps = 3;
       config.remat_policy = RematPolicy::kMinimal;
     },
     sharded_gpt},
    {"glam",
     [](TrainConfig& config) {
       config.model.experts.balance_weight = 0.1;
       config.remat_policy = RematPolicy::kNone;
     },
     sharded_glam},
    {"llama_dropout",
     [](TrainConfig& config) {
       config.model.dropout_rate = config.model.input_dropout_rate = 0.2;
       config.gradient_accumulation_steps = 2;
     },
     sharded_llama},
    {"llama_parallel_offloaded",
     [](TrainConfig& config) {
       config.model.parallel_block = true;
       config.model.logits_via_embedding = true;
       config.remat_policy = RematPolicy::kMinimalOffloaded;
       config.gradient_accumulation_steps = 2;
     },
     sharded_llama},
    {"llama_two_layers", [](TrainConfig& config) { config.model.num_layers = 2; }, sharded_llama},
    {"llama_one_layer",
     [](TrainConfig& config) {
       config.model.num_layers = 1;
       config.gradient_accumulation_steps = 2;
     },
     sharded_llama},
};

class ShardedTraining : public testing::TestWithParam<ShardedCase> {
 protected:
  static TrainConfig config(int32_t data, int32_t fsdp) {
    TrainConfig config = sharded_config(GetParam().model(), data, fsdp);
    GetParam().change(config);
    return config;
  }
};

TEST_P(ShardedTraining, IsThatOfOneRank) {
  const MeshRun alone = MeshTrainer::run(config(1, 1));
  ASSERT_TRUE(alone.status.ok()) << alone.status;
  ASSERT_GT(std::abs(alone.steps.back().loss / alone.steps.front().loss - 1), 1e-3)
      << "parameters do not change";
  for (const int32_t data : {1, 2, 4, 8}) {
    TrainConfig sharded = config(data, kMeshRanks / data);
    for (sharded.zero_stage = 1; sharded.zero_stage <= 3; ++sharded.zero_stage) {
      if (data == kMeshRanks && sharded.zero_stage < 3) continue;  // nothing is shared
      const MeshRun run = MeshTrainer::run(sharded);
      expect_same_training(run, alone,
                           absl::StrCat("data=", data, " zero_stage=", sharded.zero_stage));
      ASSERT_FALSE(HasFatalFailure());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ShardedTraining, testing::ValuesIn(kShardedCases),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(ShardedTraining, AMeshGivesTheSameBitsAgain) {
  TrainConfig config = sharded_config(sharded_gpt(), 2, 2);
  config.gradient_accumulation_steps = 2;
  const MeshRun first = MeshTrainer::run(config), second = MeshTrainer::run(config);
  EXPECT_EQ(first.losses(), second.losses());
  EXPECT_EQ(first.params, second.params);
  // Stages below 3 keep full parameters for a step instead of gathering them for each use.
  for (config.zero_stage = 1; config.zero_stage < 3; ++config.zero_stage) {
    const MeshRun kept = MeshTrainer::run(config);
    EXPECT_EQ(kept.losses()[0], first.losses()[0]);
    EXPECT_LT(largest_difference(kept.params, first.params), 1e-4);
  }
}

// Whichever axis has a part between nodes: shards are gathered inside them, across them, or both.
TEST(ShardedTraining, AcrossNodes) {
  TrainConfig config = sharded_config(sharded_gpt(), 1, 1);
  config.steps = 6;
  const MeshRun alone = MeshTrainer::run(config);
  struct Degrees {
    int32_t data, fsdp;
  };
  for (const auto& [inside, between] :
       {std::pair(Degrees{1, 4}, Degrees{2, 1}), std::pair(Degrees{4, 1}, Degrees{1, 2}),
        std::pair(Degrees{2, 2}, Degrees{1, 2})}) {
    TrainConfig nodes = sharded_config(sharded_gpt(), inside.data, inside.fsdp);
    nodes.mesh.dcn[kData] = between.data;
    nodes.mesh.dcn[kFsdp] = between.fsdp;
    nodes.per_device_batch_size = 1;
    nodes.steps = config.steps;
    expect_same_training(MeshTrainer::run(nodes), alone, mesh_of(nodes.mesh).to_string());
  }
}

// bf16 differs from fp32 by so much on one rank; shards may not add to it.
TEST(ShardedTraining, Bfloat16StaysWithinItsBand) {
  for (const bool tied : {false, true}) {
    TrainConfig config = sharded_config(sharded_llama(), 1, 1);
    config.model.logits_via_embedding = tied;
    const Bf16Band band = bf16_band(config);
    const MeshRun& alone = band.alone;
    for (const int32_t data : {1, 4}) {
      TrainConfig sharded = sharded_config(config.model, data, kMeshRanks / data);
      sharded.dtype = ComputeType::kBfloat16;
      const MeshRun run = MeshTrainer::run(sharded);
      ASSERT_TRUE(run.status.ok()) << run.status;
      // Gathered weights are what packing rounds: the first step is the same but for the order of
      // sums.
      EXPECT_NEAR(run.steps[0].loss, alone.steps[0].loss, 1e-6 * alone.steps[0].loss);
      EXPECT_LT(largest_loss_difference(run, alone), band.losses);
      EXPECT_LT(largest_difference(run.params, alone.params), 2 * band.params);
    }
  }
}

// sharded_parameters.h's formulas, from the layout's sizes.
TEST(ShardedTraining, SentBytesMatchTheFormulas) {
  constexpr int32_t kFsdpRanks = 4, kMicroBatches = 3;
  // Layers 0 and 2 alternate in a slot, and remain there when passes change direction; layer 1 has
  // a slot.
  constexpr std::array kGathersOfLayer = {kMicroBatches + 1, 1, kMicroBatches};
  for (const bool tied : {false, true}) {
    for (const ComputeType dtype : {ComputeType::kFloat32, ComputeType::kBfloat16}) {
      TrainConfig config = sharded_config(sharded_llama(), 2, kFsdpRanks);
      config.model.logits_via_embedding = tied;
      config.dtype = dtype;
      config.gradient_accumulation_steps = kMicroBatches;
      config.steps = 2;
      const auto layout =
          ShardLayout::of(config.model, mesh_of(config.mesh), 0, config.activation_type());
      uint64_t gathered = 0, scattered = 0, reduced = 0;
      for (const ParamBucket& bucket : layout.buckets()) {
        const ParamBlock& block = layout.blocks()[bucket.block];
        const auto shard = static_cast<uint64_t>(bucket.shard_elements);
        // Embedding and end alternate in a slot, unless the head is the embedding.
        int gathers = tied ? 1 : kMicroBatches;
        if (block.kind == BlockKind::kLayer)
          gathers = kGathersOfLayer[static_cast<size_t>(block.layer)];
        const bool is_used_twice = block.kind == BlockKind::kEmbedding && tied;
        gathered += static_cast<uint64_t>(gathers) * shard * dtype_bytes(bucket.gathered);
        scattered += (is_used_twice ? 2U : 1U) * kMicroBatches * shard * sizeof(float);
        reduced += shard * sizeof(float);
      }
      const MeshRun run = MeshTrainer::run(config);
      ASSERT_TRUE(run.status.ok()) << run.status;
      const auto steps = static_cast<uint64_t>(config.steps);
      const auto others = static_cast<uint64_t>(kFsdpRanks - 1);
      EXPECT_EQ(run.sent.at("fsdp#1").at(CollectiveKind::kAllGather), steps * others * gathered);
      EXPECT_EQ(run.sent.at("fsdp#1").at(CollectiveKind::kReduceScatter),
                steps * others * scattered);
      EXPECT_EQ(run.sent.at("data#1").at(CollectiveKind::kAllReduce), steps * reduced);
      EXPECT_EQ(run.sent.size(), 3U) << "groups beside these and the step's sums";
    }
  }
}

// Includes optimizers that need sums over tensors.
TEST(ShardedTraining, EveryOptimizer) {
  for (size_t type = 0; type < kOptimizerNames.size(); ++type) {
    TrainConfig config = sharded_config(sharded_llama(), 1, 1);
    config.optimizer.type = static_cast<OptimizerType>(type);
    config.optimizer.update_clip = 0.5;
    config.steps = 6;
    const MeshRun alone = MeshTrainer::run(config);
    TrainConfig sharded = config;
    sharded.mesh.ici[kData] = 2, sharded.mesh.ici[kFsdp] = 4;
    sharded.per_device_batch_size = 1;
    expect_same_training(MeshTrainer::run(sharded), alone, std::string(kOptimizerNames[type]));
  }
}

// The largest magnitudes of all ranks are everybody's, and the state lies whole behind each rank's
// shards.
TEST(ShardedTraining, DelayedScaling) {
  TrainConfig config = sharded_config(sharded_llama(), 1, 1);
  config.model.quantization = {.type = QuantizationType::kFp8Delayed, .amax_history_length = 4};
  // Small, because a difference in the last bit may round to another number of the grid.
  config.optimizer.learning_rate = 1e-9;
  config.steps = 4;
  const MeshRun alone = MeshTrainer::run(config);
  config.mesh.ici[kFsdp] = 4;
  config.per_device_batch_size = 2;
  expect_same_training(MeshTrainer::run(config), alone, "fsdp=4");
}

// After a local error, for example in its data: the rank does not wait for what it has begun, and
// its peers fail.
TEST(ShardedTraining, ARankThatEndsInAPassDoesNotWaitForAHungPeer) {
  const TrainConfig config = sharded_config(sharded_llama(), 1, 2);
  std::latch gone(1);
  on_mesh(mesh_of(config.mesh), [&](ProcessGroups& groups) {
    if (groups.rank() == 0) {
      const TrainingPlan plan = plan_training(config, 1, Staging::kNo, 0);
      const Arena arena(plan.memory());
      const auto ops = cpu_ops(1);
      ShardedParameters(plan.model, arena, *ops, &groups).prefetch(0);
      gone.count_down();
    } else {
      gone.wait();
      EXPECT_THAT(std::string(groups.world().barrier("step").message()),
                  testing::HasSubstr("rank 0 aborted"));
    }
  });
}

// The first failed collective ends the pass on every rank, and the step returns it.
TEST(ShardedTraining, ALostRankEndsTheStep) {
  TrainConfig config = sharded_config(sharded_llama(), 2, 4);
  const MeshRun run = MeshTrainer::run(config, [](ProcessGroups& groups, RankModel&, int64_t step) {
    if (groups.rank() == 5 && step == 3) groups.abort();
  });
  EXPECT_TRUE(absl::IsUnavailable(run.status)) << run.status;
}

}  // namespace
}  // namespace muster::trainer
