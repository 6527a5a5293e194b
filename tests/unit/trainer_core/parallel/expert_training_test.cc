// Ranks that share experts out train as one rank does that has all of them.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "tests/unit/trainer_core/model/sharded_models.h"
#include "tests/unit/trainer_core/parallel/mesh_configs.h"
#include "tests/unit/trainer_core/parallel/mesh_trainer.h"
#include "trainer_core/base/expert_rules.h"

namespace muster::trainer {
namespace {

using enum MeshAxis;
constexpr int32_t kExperts = 8;

TrainConfig on(TrainConfig config, const MeshShape& shape) {
  config.mesh = shape;
  config.per_device_batch_size = kSequences / batch_slice(mesh_of(shape), 0).count;
  return config;
}

TrainConfig with_balance(const ModelConfig& model) {
  TrainConfig config = config_of(model, {});
  config.model.experts.balance_weight = 0.1;
  return config;
}

// GLaM's router and experts: two of them, with a capacity that drops, first choices before second
// ones.
TrainConfig glam() {
  TrainConfig config = with_balance(sharded_glam());
  ExpertConfig& experts = config.model.experts;
  experts.router = RouterStyle::kPax;
  experts.first_layer = 0;
  experts.gated = false;
  experts.activation = Activation::kRelu;
  experts.capacity_factor = 1;
  experts.num_groups = 16;
  config.model.z_loss_multiplier = 1e-2;
  config.gradient_accumulation_steps = 2;
  config.remat_policy = RematPolicy::kMinimal;
  return config;
}

// No token is dropped, in every second layer.
TrainConfig dropless() {
  TrainConfig config = with_balance(sharded_glam());
  config.model.experts.per_token = 3;
  config.model.dropout_rate = 0.2;
  return config;
}

// Gated experts in every layer, of untied embeddings.
TrainConfig mixtral() {
  TrainConfig config = config_of(sharded_llama(), {});
  config.model.name = "mixtral";
  config.model.experts = {.count = kExperts, .per_token = 2, .mlp_dim = 9, .balance_weight = 0.1};
  config.gradient_accumulation_steps = 2;
  config.remat_policy = RematPolicy::kMinimalOffloaded;
  return config;
}

// Groups are sequences, and some of their tokens are dropped.
TrainConfig capped() {
  TrainConfig config = mixtral();
  config.model.experts.capacity_factor = 1;
  config.gradient_accumulation_steps = 1;
  config.remat_policy = RematPolicy::kNone;
  return config;
}

struct ExpertTrainingCase {
  const char* name;
  TrainConfig (*config)();
  bool drops;
  std::vector<MeshShape> meshes;

  friend void PrintTo(const ExpertTrainingCase& test, std::ostream* out) { *out << test.name; }
};

const ExpertTrainingCase kExpertCases[] = {
    {"glam",
     glam,
     true,
     {mesh({{kExpert, 2}}), mesh({{kExpert, 4}, {kTensor, 2}}), mesh({{kFsdp, 2}, {kExpert, 4}}),
      mesh({{kData, 2}, {kExpert, 2}, {kTensor, 2}})}},
    {"dropless",
     dropless,
     false,
     {mesh({{kExpert, 8}}), mesh({{kFsdp, 2}, {kExpert, 2}, {kTensor, 2}}),
      mesh({{kSequence, 2}, {kExpert, 4}})}},
    {"mixtral",
     mixtral,
     false,
     {mesh({{kExpert, 4}}), mesh({{kData, 2}, {kFsdp, 2}, {kExpert, 2}}),
      mesh({{kExpert, 2}, {kTensor, 4}})}},
    {"capped",
     capped,
     true,
     {mesh({{kContext, 2}, {kExpert, 2}, {kTensor, 2}}), mesh({{kData, 2}, {kExpert, 4}})}},
};

class ExpertTraining : public testing::TestWithParam<ExpertTrainingCase> {};

TEST_P(ExpertTraining, IsThatOfOneRank) {
  const TrainConfig config = GetParam().config();
  const MeshRun alone = MeshTrainer::run(config);
  ASSERT_TRUE(alone.status.ok()) << alone.status;
  ASSERT_GT(std::abs(alone.steps.back().loss / alone.steps.front().loss - 1), 1e-3)
      << "parameters do not change";
  ASSERT_GT(alone.steps[0].experts->balance_loss, 0);
  ASSERT_EQ(alone.steps[0].experts->dropped_fraction > 0, GetParam().drops);
  for (const MeshShape& shape : GetParam().meshes) {
    const TrainConfig split = on(config, shape);
    ASSERT_TRUE(validate_on_mesh(split).ok()) << validate_on_mesh(split);
    ASSERT_TRUE(validate_experts(split).ok()) << validate_experts(split);
    expect_same_training(MeshTrainer::run(split), alone, mesh_of(shape).to_string());
    ASSERT_FALSE(HasFatalFailure());
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ExpertTraining, testing::ValuesIn(kExpertCases),
                         [](const auto& test) { return std::string(test.param.name); });

// Without num_groups a micro-batch is a group: drops then depend on the mesh.
TEST(ExpertTraining, GroupsOfMicroBatchesAreTheMeshs) {
  TrainConfig config = glam();
  config.steps = 2;
  const MeshRun fixed = MeshTrainer::run(config);
  config.model.experts.num_groups = 0;
  const MeshRun alone = MeshTrainer::run(config);
  const MeshRun split = MeshTrainer::run(on(config, mesh({{kExpert, 4}})));
  ASSERT_TRUE(split.status.ok()) << split.status;
  EXPECT_NE(alone.steps[0].experts->dropped_fraction, split.steps[0].experts->dropped_fraction);
  EXPECT_NE(alone.steps[0].experts->dropped_fraction, fixed.steps[0].experts->dropped_fraction);
  // As many groups as micro-batches.
  config.model.experts.num_groups = 2;
  const MeshRun same = MeshTrainer::run(config);
  EXPECT_EQ(same.losses(), alone.losses());
  EXPECT_EQ(same.params, alone.params);
}

// Two tokens a rank for eight experts, each of a rank's own: some ranks' experts get nothing.
TEST(ExpertTraining, ExpertsWithoutTokens) {
  TrainConfig config = dropless();
  config.model.experts.per_token = 1;
  config.model.dropout_rate = 0;
  config.max_target_length = 2;
  config.steps = 5;
  const MeshRun alone = MeshTrainer::run(config);
  expect_same_training(MeshTrainer::run(on(config, mesh({{kExpert, 8}}))), alone, "expert=8");
}

// Rows are rounded on their way as they are when they stay; what is left is the order of sums over
// ranks.
TEST(ExpertTraining, Bfloat16StaysWithinItsBand) {
  TrainConfig config = mixtral();
  const MeshRun exact = MeshTrainer::run(config);
  config.dtype = ComputeType::kBfloat16;
  const MeshRun alone = MeshTrainer::run(config);
  double band = 0;
  for (size_t i = 0; i < exact.steps.size(); ++i)
    band = std::max(band, std::abs(alone.steps[i].loss / exact.steps[i].loss - 1));
  const double params_band = largest_difference(alone.params, exact.params);
  ASSERT_GT(band, 1e-6);
  const MeshRun run = MeshTrainer::run(on(config, mesh({{kFsdp, 2}, {kExpert, 2}})));
  ASSERT_TRUE(run.status.ok()) << run.status;
  for (size_t i = 0; i < run.steps.size(); ++i)
    EXPECT_LT(std::abs(run.steps[i].loss / alone.steps[i].loss - 1), 2 * band) << i;
  EXPECT_LT(largest_difference(run.params, alone.params), 4 * params_band);
}

// mesh_exchange.h's formulas, where every token chooses every expert.
TEST(ExpertTraining, SentBytesMatchTheFormulas) {
  constexpr uint64_t kRanks = 4, kMicroBatches = 2, kChosen = 4;
  for (const RematPolicy policy : {RematPolicy::kNone, RematPolicy::kFull}) {
    for (const ComputeType dtype : {ComputeType::kFloat32, ComputeType::kBfloat16}) {
      TrainConfig config = mixtral();
      config.model.experts.count = config.model.experts.per_token = kChosen;
      config.remat_policy = policy;
      config.dtype = dtype;
      config.steps = 2;
      const MeshRun run = MeshTrainer::run(on(config, mesh({{kData, 2}, {kExpert, kRanks}})));
      ASSERT_TRUE(run.status.ok()) << run.status;
      const uint64_t passes = static_cast<uint64_t>(config.steps) * kMicroBatches;
      const auto layers = static_cast<uint64_t>(config.model.num_layers);
      const uint64_t again = policy == RematPolicy::kFull ? layers - 1 : 0;
      const uint64_t tokens = uint64_t{kSequences} * kLength / 2 / kRanks;
      const uint64_t sent = tokens * kChosen * (kRanks - 1) / kRanks;  // and as many received
      const uint64_t d =
          static_cast<uint64_t>(config.model.emb_dim) * dtype_bytes(config.activation_type());
      const uint64_t counts = 4 * (kRanks - 1) * kChosen / kRanks;
      const uint64_t forward = counts + 2 * sent * d, backward = 3 * sent * d + 8 * sent;
      EXPECT_EQ(run.sent.at("expert").at(CollectiveKind::kAllToAll),
                passes * (layers * (forward + backward) + again * sent * d));
      EXPECT_EQ(run.sent.at("expert").size(), 1U) << "other collectives in the pass";
      // Parameters outside experts are gathered and scattered; experts' gradients are summed only
      // over replicas.
      EXPECT_EQ(run.sent.at("expert#1").size(), 2U);
      EXPECT_EQ(run.sent.at("data#1").size(), 1U);
      EXPECT_THAT(run.sent, testing::SizeIs(4)) << "groups beside these and the step's sums";
    }
  }
}

// The first failed collective ends the pass on every rank, and the step returns it.
TEST(ExpertTraining, ALostRankEndsTheStep) {
  const TrainConfig config = on(glam(), mesh({{kFsdp, 2}, {kExpert, 2}, {kTensor, 2}}));
  const MeshRun run = MeshTrainer::run(config, [](ProcessGroups& groups, RankModel&, int64_t step) {
    if (groups.rank() == 5 && step == 3) groups.abort();
  });
  EXPECT_TRUE(absl::IsUnavailable(run.status)) << run.status;
}

}  // namespace
}  // namespace muster::trainer
