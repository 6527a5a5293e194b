// Whatever ranks split of the computation, they train as one rank does.
#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <string>

#include <absl/strings/str_cat.h>

#include "tests/unit/trainer_core/model/sharded_models.h"
#include "tests/unit/trainer_core/parallel/mesh_configs.h"
#include "tests/unit/trainer_core/parallel/mesh_trainer.h"

namespace muster::trainer {
namespace {

const MeshCase kMeshCases[] = {
    {"llama", sharded_llama, [](TrainConfig&) {}},
    {"llama_biases_dropout", sharded_llama,
     [](TrainConfig& config) {
       config.model.qkv_bias = config.model.out_bias = config.model.mlp_bias = true;
       config.model.dropout_rate = config.model.input_dropout_rate = 0.2;
       config.gradient_accumulation_steps = 2;
     }},
    {"llama_parallel_offloaded", sharded_llama,
     [](TrainConfig& config) {
       config.model.parallel_block = config.model.logits_via_embedding = true;
       config.remat_policy = RematPolicy::kMinimalOffloaded;
       config.gradient_accumulation_steps = 2;
     }},
    {"llama_one_kv_head_capped", sharded_llama,
     [](TrainConfig& config) {
       config.model.num_kv_heads = 1;
       config.model.final_logits_soft_cap = 2;
       config.model.z_loss_multiplier = 1e-2;
       config.remat_policy = RematPolicy::kNone;
     }},
    {"gpt_accumulated", sharded_gpt,
     [](TrainConfig& config) {
       config.gradient_accumulation_steps = 3;
       config.remat_policy = RematPolicy::kMinimal;
     }},
    {"glam", sharded_glam, [](TrainConfig& config) { config.model.experts.balance_weight = 0.1; }},
    {"glam_capacity", sharded_glam,
     [](TrainConfig& config) {
       config.model.experts.balance_weight = 0.1;
       config.model.experts.capacity_factor = 1;
       config.remat_policy = RematPolicy::kMinimal;
     }},
};

class MeshTraining : public testing::TestWithParam<MeshCase> {
 protected:
  static TrainConfig config(const MeshShape& shape) {
    TrainConfig config = config_of(GetParam().model(), shape);
    GetParam().change(config);
    return config;
  }
  static const MeshRun& alone() {
    static std::map<std::string, MeshRun> runs;
    const auto found = runs.find(GetParam().name);
    if (found != runs.end()) return found->second;
    return runs.emplace(GetParam().name, MeshTrainer::run(config({}))).first->second;
  }
  static void expect_that_of_one_rank(const TrainConfig& config) {
    const std::string what =
        absl::StrCat(mesh_of(config.mesh).to_string(), " zero_stage=", config.zero_stage);
    expect_same_training(MeshTrainer::run(config), alone(), what);
  }
};

TEST_P(MeshTraining, IsThatOfOneRank) {
  using enum MeshAxis;
  ASSERT_TRUE(alone().status.ok()) << alone().status;
  ASSERT_GT(std::abs(alone().steps.back().loss / alone().steps.front().loss - 1), 1e-3)
      << "parameters do not change";
  // mesh_matrix_test.cc has every mesh, of fewer models.
  for (const MeshShape& shape :
       {mesh({{kTensor, 2}}), mesh({{kTensor, 8}}), mesh({{kFsdp, 2}, {kTensor, 4}}),
        mesh({{kData, 4}, {kTensor, 2}}), mesh({{kData, 2}, {kFsdp, 2}, {kTensor, 2}})}) {
    if (!validate_on_mesh(config(shape)).ok()) continue;
    expect_that_of_one_rank(config(shape));
    ASSERT_FALSE(HasFatalFailure());
  }
}

TEST_P(MeshTraining, AtEveryZeroStage) {
  using enum MeshAxis;
  TrainConfig sharded = config(mesh({{kData, 2}, {kFsdp, 2}, {kTensor, 2}}));
  for (sharded.zero_stage = 1; sharded.zero_stage < 3; ++sharded.zero_stage) {
    expect_that_of_one_rank(sharded);
    ASSERT_FALSE(HasFatalFailure());
  }
}

INSTANTIATE_TEST_SUITE_P(Models, MeshTraining, testing::ValuesIn(kMeshCases),
                         [](const auto& test) { return std::string(test.param.name); });

// Roundings of partial sums come on top of those that one rank makes; their sum stays within what
// bf16 is off fp32.
TEST(MeshTraining, Bfloat16StaysWithinItsBand) {
  const TrainConfig config = config_of(sharded_llama(), {});
  const Bf16Band band = bf16_band(config);
  for (const MeshShape& shape :
       {mesh({{MeshAxis::kTensor, 8}}), mesh({{MeshAxis::kFsdp, 4}, {MeshAxis::kTensor, 2}})}) {
    TrainConfig split = config_of(config.model, shape);
    split.dtype = ComputeType::kBfloat16;
    const MeshRun run = MeshTrainer::run(split);
    ASSERT_TRUE(run.status.ok()) << run.status;
    EXPECT_LT(largest_loss_difference(run, band.alone), 2 * band.losses);
    EXPECT_LT(largest_difference(run.params, band.alone.params), 4 * band.params);
  }
}

// mesh_exchange.h's formulas.
TEST(MeshTraining, SentBytesMatchTheFormulas) {
  constexpr int32_t kTensor = 4, kMicroBatches = 2;
  for (const RematPolicy policy : {RematPolicy::kNone, RematPolicy::kFull}) {
    for (const ComputeType dtype : {ComputeType::kFloat32, ComputeType::kBfloat16}) {
      TrainConfig config = config_of(sharded_llama(), mesh({{MeshAxis::kTensor, kTensor}}));
      config.remat_policy = policy;
      config.dtype = dtype;
      config.gradient_accumulation_steps = kMicroBatches;
      config.steps = 2;
      const MeshRun run = MeshTrainer::run(config);
      ASSERT_TRUE(run.status.ok()) << run.status;
      const auto passes = static_cast<uint64_t>(config.steps) * kMicroBatches;
      const auto layers = static_cast<uint64_t>(config.model.num_layers);
      const uint64_t rows = uint64_t{kSequences} * kLength;
      const uint64_t n = rows * static_cast<uint64_t>(config.model.emb_dim) *
                         dtype_bytes(config.activation_type()) * (kTensor - 1) / kTensor;
      const uint64_t again = policy == RematPolicy::kFull ? layers - 1 : 0;
      EXPECT_EQ(run.sent.at("tensor").at(CollectiveKind::kAllGather),
                passes * ((6 * layers + 2 + 2 * again) * n + 12 * (kTensor - 1) * rows));
      EXPECT_EQ(run.sent.at("tensor").at(CollectiveKind::kReduceScatter),
                passes * (4 * layers + 2 + again) * n);
    }
  }
}

// Includes optimizers that need sums over tensors.
TEST(MeshTraining, EveryOptimizer) {
  for (size_t type = 0; type < kOptimizerNames.size(); ++type) {
    TrainConfig config = config_of(sharded_llama(), {});
    config.optimizer.type = static_cast<OptimizerType>(type);
    config.optimizer.update_clip = 0.5;
    config.steps = 6;
    const MeshRun alone = MeshTrainer::run(config);
    config.mesh = mesh({{MeshAxis::kFsdp, 2}, {MeshAxis::kTensor, 4}});
    config.per_device_batch_size = kSequences / 2;
    expect_same_training(MeshTrainer::run(config), alone, std::string(kOptimizerNames[type]));
  }
}

// The first failed collective ends the pass on every rank, and the step returns it.
TEST(MeshTraining, ALostRankEndsTheStep) {
  const TrainConfig config =
      config_of(sharded_glam(), mesh({{MeshAxis::kFsdp, 2}, {MeshAxis::kTensor, 4}}));
  const MeshRun run = MeshTrainer::run(config, [](ProcessGroups& groups, RankModel&, int64_t step) {
    if (groups.rank() == 5 && step == 3) groups.abort();
  });
  EXPECT_TRUE(absl::IsUnavailable(run.status)) << run.status;
}

}  // namespace
}  // namespace muster::trainer
