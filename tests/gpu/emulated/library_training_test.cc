// Whole trainings on the emulated device with test doubles of the libraries: the CPU's losses, by
// GEMMs with epilogues and the library's attention, and rank 0's notes when a library is not used.
#include <gmock/gmock.h>

#include <string>

#include <gtest/gtest.h>

#include "tests/gpu/emulated/libraries.h"
#include "tests/gpu/gpu_device.h"
#include "tests/unit/trainer_core/train_helpers.h"

namespace muster::trainer {
namespace {

using emulated::libraries;
using testing::Each;
using testing::HasSubstr;
using testing::Not;
using Kind = cuda::LibraryEpilogue::Kind;

// Like GPT: biases, LayerNorm, GELU without a gate.
TrainConfig gpt(ComputeType dtype) {
  TrainConfig config = tiny_config(1);
  config.steps = 4;
  config.per_device_batch_size = 2;
  config.max_target_length = 8;
  config.dtype = dtype;
  ModelConfig& model = config.model;
  model.norm_type = NormType::kLayer;
  model.activation = Activation::kGelu;
  model.gated_mlp = false;
  model.qkv_bias = model.out_bias = model.mlp_bias = true;
  model.position_type = PositionType::kLearned;
  model.trainable_position_size = 8;
  return config;
}

RunResult run_on_cpu(const TrainConfig& config) {
  const OnCpu on_cpu;
  return run(config);
}

void expect_the_cpus(const TrainConfig& config, const RunResult& gpu) {
  // Must not outlive the emulated device.
  (void)take_devices();
  const RunResult cpu = run_on_cpu(config);
  ASSERT_THAT(gpu.codes, Each(ExitCode::kOk)) << gpu.err;
  ASSERT_EQ(gpu.losses().size(), cpu.losses().size());
  const double bound = config.dtype == ComputeType::kBfloat16 ? 2e-2 : 1e-4;
  for (size_t i = 0; i < gpu.losses().size(); ++i)
    EXPECT_NEAR(gpu.losses()[i], cpu.losses()[i], bound * cpu.losses()[i]) << "step " << i;
  const double norm = cpu.records[0][0].raw_grad_norm;
  EXPECT_NEAR(gpu.records[0][0].raw_grad_norm, norm, 10 * bound * norm);
}

TEST(TrainByLibraries, Bf16ModelWithBiasesAndGelu) {
  libraries() = {};
  for (const RematPolicy remat : {RematPolicy::kNone, RematPolicy::kFull}) {
    TrainConfig config = gpt(ComputeType::kBfloat16);
    config.remat_policy = remat;
    const RunResult result = run(config);
    expect_the_cpus(config, result);
    EXPECT_THAT(result.out, Not(HasSubstr("built-in kernels")));
    EXPECT_THAT(result.out, HasSubstr("beside the plan on the GPU: "));
  }
  EXPECT_GT(libraries().attentions, 0);
  EXPECT_GT(libraries().attention_gradients, 0);
  EXPECT_GT(libraries().products_of(Kind::kBias), 0);
  EXPECT_GT(libraries().products_of(Kind::kGeluBias), 0);
  EXPECT_GT(libraries().products_of(Kind::kGeluGradient), 0);
}

TEST(TrainByLibraries, Fp32ModelWithBuiltInAttentionAndGelu) {
  libraries() = {};
  const TrainConfig config = gpt(ComputeType::kFloat32);
  const RunResult result = run(config);
  expect_the_cpus(config, result);
  EXPECT_GT(libraries().products_of(Kind::kNone), 0);
  EXPECT_EQ(libraries().products_of(Kind::kGeluBias), 0);
  EXPECT_EQ(libraries().products_of(Kind::kGeluGradient), 0);
  EXPECT_EQ(libraries().attentions, 0);
  const std::string note =
      "built-in kernels compute attention of (B, S, H, K, h) = (2, 8, 4, 2, 8) instead of cuDNN: "
      "it "
      "supports only bf16\n";
  const size_t first = result.out.find(note);
  ASSERT_NE(first, std::string::npos) << result.out;
  EXPECT_EQ(result.out.find(note, first + 1), std::string::npos) << "repeated";
}

// Dropout lies between the GEMM and GELU's gradient, so they cannot be fused.
TEST(TrainByLibraries, DropoutOfTheActivation) {
  libraries() = {};
  TrainConfig config = gpt(ComputeType::kBfloat16);
  config.model.dropout_rate = 0.1;
  expect_the_cpus(config, run(config));
  EXPECT_GT(libraries().products_of(Kind::kGeluBias), 0);
  EXPECT_EQ(libraries().products_of(Kind::kGeluGradient), 0);
}

}  // namespace
}  // namespace muster::trainer
