// Trainings whose parameters are stored in bf16 (weight_dtype). The reference has the same model
// and optimizer with parameters of fp32 that a test rounds to bf16 before each step: an update that
// is computed in fp32 from the stored values and rounded once.
#include <string>

#include <absl/strings/str_cat.h>

#include "tests/unit/sanitized.h"
#include "tests/unit/trainer_core/model/sharded_models.h"
#include "tests/unit/trainer_core/parallel/mesh_configs.h"
#include "tests/unit/trainer_core/parallel/mesh_trainer.h"

namespace muster::trainer {
namespace {

constexpr ComputeType kFp32 = ComputeType::kFloat32, kBf16 = ComputeType::kBfloat16;

TrainConfig with_bf16_weights(TrainConfig config) {
  config.weight_dtype = kBf16;
  return config;
}

MeshRun reference(const TrainConfig& config) {
  MeshRun run = MeshTrainer::run(config, [](ProcessGroups&, RankModel& rank_model, int64_t) {
    for (float& value : rank_model.model().params()) value = Bf16::round(value).value();
    rank_model.parameters_changed();
  });
  for (float& value : run.params) value = Bf16::round(value).value();
  return run;
}

void expect_the_references_bits(const TrainConfig& config, const std::string& what) {
  const MeshRun expected = reference(config), run = MeshTrainer::run(with_bf16_weights(config));
  ASSERT_TRUE(run.status.ok()) << what << ": " << run.status;
  EXPECT_EQ(run.losses(), expected.losses()) << what;
  EXPECT_EQ(run.params, expected.params) << what;
  // Rounding is visible: the test compares something.
  const MeshRun exact = MeshTrainer::run(config);
  EXPECT_GT(largest_loss_difference(run, exact), 0) << what;
}

TrainConfig few_steps(const ModelConfig& model) {
  TrainConfig config = config_of(model, {});
  config.steps = 5;
  return config;
}

// Every kind of parameter: matrices, norms, biases, learned positions, relative biases, experts,
// and a tied table; passes that read matrices as they are stored, and passes that convert all.
TEST(WeightType, OnOneRankTrainsAsARoundedFp32Model) {
  for (const ModelConfig& model : {sharded_llama(), sharded_gpt(), sharded_glam()}) {
    for (const ComputeType dtype : {kBf16, kFp32}) {
      TrainConfig config = few_steps(model);
      config.dtype = dtype;
      config.gradient_accumulation_steps = 2;
      expect_the_references_bits(
          config,
          absl::StrCat(model.name, " dtype=", std::string(name_of(kComputeTypeNames, dtype))));
    }
  }
}

TEST(WeightType, OfEveryOptimizer) {
  for (size_t type = 0; type < kOptimizerNames.size(); ++type) {
    TrainConfig config = few_steps(sharded_llama());
    config.dtype = kBf16;
    config.optimizer.type = static_cast<OptimizerType>(type);
    config.optimizer.update_clip = 0.5;
    config.optimizer.mu_dtype = type == 0 ? kBf16 : kFp32;
    expect_the_references_bits(config, std::string(kOptimizerNames[type]));
  }
}

// Quantized GEMMs round the widened values.
TEST(WeightType, OfQuantizedGemms) {
  for (const QuantizationType type : {QuantizationType::kInt8, QuantizationType::kFp8Delayed}) {
    TrainConfig config = few_steps(sharded_llama());
    config.dtype = kBf16;
    config.model.quantization = {.type = type, .amax_history_length = 3};
    expect_the_references_bits(config, std::string(name_of(kQuantizationNames, type)));
  }
}

TEST(WeightType, OfAllRematPolicies) {
  for (const RematPolicy policy : {RematPolicy::kNone, RematPolicy::kMinimalOffloaded}) {
    TrainConfig config = few_steps(sharded_gpt());
    config.dtype = kBf16;
    config.remat_policy = policy;
    config.model.dropout_rate = 0.1;
    expect_the_references_bits(config, std::string(name_of(kRematPolicyNames, policy)));
  }
}

// The order of sums may decide how a parameter is rounded: by one step of bf16, which is less than
// what bf16 weights change.
void expect_that_of_one_rank(const ModelConfig& model, const MeshShape& shape, ComputeType dtype,
                             int32_t zero_stage = 3) {
  const auto config_on = [&](const MeshShape& on) {
    TrainConfig config = config_of(model, on);
    config.model.num_layers = 4;
    config.dtype = dtype;
    config.zero_stage = zero_stage;
    const int32_t stages = mesh_of(on).degree(MeshAxis::kPipeline);
    if (stages > 1) {
      config.pipeline_repeats = 2;
      config.pipeline_microbatches = stages;
    }
    return config;
  };
  const std::string what =
      absl::StrCat(model.name, " on ", mesh_of(shape).to_string(), " zero_stage=", zero_stage,
                   " dtype=", std::string(name_of(kComputeTypeNames, dtype)));
  const MeshRun exact = MeshTrainer::run(config_on({}));
  const MeshRun alone = MeshTrainer::run(with_bf16_weights(config_on({})));
  const MeshRun run = MeshTrainer::run(with_bf16_weights(config_on(shape)));
  ASSERT_TRUE(run.status.ok()) << what << ": " << run.status;
  // Exchanges round partial sums to the activations' type.
  if (dtype == kFp32) {
    EXPECT_NEAR(run.steps[0].loss, alone.steps[0].loss, 1e-5 * alone.steps[0].loss) << what;
  }
  EXPECT_LT(largest_loss_difference(run, alone), largest_loss_difference(alone, exact)) << what;
  EXPECT_LT(largest_difference(run.params, alone.params),
            2 * largest_difference(alone.params, exact.params))
      << what;
}

TEST(WeightType, OnMeshesTrainsAsOnOneRank) {
  using enum MeshAxis;
  for (const ComputeType dtype : {kBf16, kFp32}) {
    if (kSanitized && dtype == kBf16) continue;
    for (const MeshShape& shape :
         {mesh({{kData, 2}}), mesh({{kFsdp, 4}}), mesh({{kData, 2}, {kFsdp, 4}}),
          mesh({{kTensor, 2}}), mesh({{kTensor, 4}, {kFsdp, 2}}), mesh({{kSequence, 2}}),
          mesh({{kContext, 2}}), mesh({{kPipeline, 2}}), mesh({{kPipeline, 2}, {kFsdp, 2}})})
      expect_that_of_one_rank(sharded_llama(), shape, dtype);
    // A tied table at both ends of a pipeline; experts on ranks of their own.
    expect_that_of_one_rank(sharded_glam(), mesh({{kPipeline, 2}}), dtype);
    expect_that_of_one_rank(sharded_glam(), mesh({{kExpert, 4}, {kFsdp, 2}}), dtype);
  }
  for (const int32_t zero_stage : {1, 2})
    expect_that_of_one_rank(sharded_gpt(), mesh({{kFsdp, 4}}), kBf16, zero_stage);
}

// Matrices are gathered as they are stored, without a copy, and vectors as fp32.
TEST(WeightType, GathersAsManyBytesAsBf16Activations) {
  TrainConfig config = few_steps(sharded_gpt());
  config.mesh = mesh({{MeshAxis::kFsdp, 4}});
  config.per_device_batch_size = 2;
  config.dtype = kBf16;
  const MeshRun of_fp32 = MeshTrainer::run(config);
  const MeshRun of_bf16 = MeshTrainer::run(with_bf16_weights(config));
  ASSERT_TRUE(of_fp32.status.ok() && of_bf16.status.ok());
  EXPECT_EQ(of_bf16.sent, of_fp32.sent);
}

}  // namespace
}  // namespace muster::trainer
