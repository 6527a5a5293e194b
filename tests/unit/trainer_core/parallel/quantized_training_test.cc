// Quantized GEMMs split over ranks equal those of one rank.
#include <string>

#include <absl/strings/str_cat.h>

#include "tests/unit/trainer_core/model/sharded_models.h"
#include "tests/unit/trainer_core/parallel/mesh_configs.h"
#include "tests/unit/trainer_core/parallel/mesh_trainer.h"

namespace muster::trainer {
namespace {

TrainConfig quantized(QuantizationType type, const MeshShape& shape) {
  ModelConfig model = sharded_llama();
  model.num_kv_heads = 4;
  model.qkv_bias = model.out_bias = model.mlp_bias = true;
  model.quantization = {.type = type, .amax_history_length = 3, .stochastic_rounding = false};
  TrainConfig config = config_of(model, shape);
  config.steps = 5;
  // A difference in the last bit may round to another number of the grid.
  config.optimizer.learning_rate = 1e-9;
  return config;
}

void expect_that_of_one_rank(QuantizationType type, const MeshShape& shape) {
  const MeshRun alone = MeshTrainer::run(quantized(type, {}));
  ASSERT_TRUE(alone.status.ok()) << alone.status;
  const MeshRun plain = MeshTrainer::run(quantized(QuantizationType::kNone, {}));
  ASSERT_GT(largest_loss_difference(alone, plain), 1e-5) << "nothing is rounded";
  expect_same_training(MeshTrainer::run(quantized(type, shape)), alone,
                       absl::StrCat(std::string(name_of(kQuantizationNames, type)), " ",
                                    mesh_of(shape).to_string()));
}

class QuantizedTraining : public testing::TestWithParam<QuantizationType> {};

// One slice of the batch, with MLP columns that do not divide evenly.
TEST_P(QuantizedTraining, OnTensorRanks) {
  for (const int32_t degree : {2, 4})
    expect_that_of_one_rank(GetParam(), mesh({{MeshAxis::kTensor, degree}}));
}

INSTANTIATE_TEST_SUITE_P(Types, QuantizedTraining,
                         testing::Values(QuantizationType::kInt8, QuantizationType::kFp8Delayed,
                                         QuantizationType::kFp8Current));

// Scales that are the state's do not depend on how tokens are spread, either.
TEST(DelayedScaling, OnMeshesOfEveryAxis) {
  for (const MeshShape& shape :
       {mesh({{MeshAxis::kTensor, 2}, {MeshAxis::kFsdp, 2}, {MeshAxis::kData, 2}}),
        mesh({{MeshAxis::kTensor, 2}, {MeshAxis::kContext, 2}}),
        mesh({{MeshAxis::kSequence, 2}, {MeshAxis::kFsdp, 2}, {MeshAxis::kPipeline, 1}})})
    expect_that_of_one_rank(QuantizationType::kFp8Delayed, shape);
}

// Draws of gradients are of each rank's columns: other ones than one rank's, of the same size.
TEST(StochasticRounding, OnTensorRanksIsAsGood) {
  const auto stochastic = [](const MeshShape& shape) {
    TrainConfig config = quantized(QuantizationType::kInt8, shape);
    config.model.quantization.stochastic_rounding = true;
    return config;
  };
  const MeshRun alone = MeshTrainer::run(stochastic({}));
  const MeshRun run = MeshTrainer::run(stochastic(mesh({{MeshAxis::kTensor, 4}})));
  ASSERT_TRUE(run.status.ok()) << run.status;
  EXPECT_LT(largest_loss_difference(run, alone), 1e-5);
  EXPECT_NEAR(run.steps[0].raw_grad_norm / alone.steps[0].raw_grad_norm, 1, 0.02);
}

}  // namespace
}  // namespace muster::trainer
