// Losses and gradients have the same bits for every choice of tensors that layers keep.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/sanitized.h"
#include "tests/unit/trainer_core/model/transformer_fixture.h"

namespace muster::trainer {
namespace {

constexpr int32_t kRematBatch = 2;

struct RematOutcome {
  std::vector<double> losses;
  std::vector<float> grads;

  // Compares bits: a NaN equals itself.
  friend bool operator==(const RematOutcome& a, const RematOutcome& b) {
    return std::memcmp(a.losses.data(), b.losses.data(), a.losses.size() * sizeof(double)) == 0 &&
           std::memcmp(a.grads.data(), b.grads.data(), a.grads.size() * sizeof(float)) == 0;
  }
};

// Three layers: the last one is never recomputed.
ModelConfig three_layers(ModelConfig config) {
  config.num_layers = 3;
  return config;
}

// Fills everything with NaN before a step, except the parameters and what the constructor computes.
void poison(const TestModel& test) {
  const float* params = test.arena.f32(test.plan.param_block);
  for (const PlannedBuffer& buffer : test.plan.memory.buffers()) {
    if (buffer.name.starts_with("rope_")) continue;
    auto* const start =
        reinterpret_cast<float*>(static_cast<std::byte*>(test.arena.begin()) + buffer.offset);
    if (start == params) continue;
    std::fill_n(start, buffer.bytes / sizeof(float), std::numeric_limits<float>::quiet_NaN());
  }
}

// Runs a step, and a second one whose gradients are added to the first one's.
RematOutcome outcome_of(const ModelConfig& config, const LayerPlacements& placements,
                        int32_t seq_len, int32_t threads, DType dtype = DType::kF32) {
  TestModel test(config, kRematBatch, seq_len, placements, threads, true, dtype);
  randomize_params(test.plan, test.model.params());
  poison(test);
  const TestBatch data(config.vocab_size, int64_t{kRematBatch} * seq_len);
  RematOutcome outcome;
  outcome.losses.push_back(test.model.forward_backward(data.view()).loss);
  outcome.grads.assign(test.model.grads().begin(), test.model.grads().end());
  outcome.losses.push_back(test.model.forward_backward(data.view(), Accumulate::kYes).loss);
  outcome.grads.insert(outcome.grads.end(), test.model.grads().begin(), test.model.grads().end());
  outcome.losses.push_back(test.model.forward(data.view()).loss);
  return outcome;
}

ModelConfig with_quantization(ModelConfig config, QuantizationType type) {
  config.quantization = {.type = type, .amax_history_length = 3};
  return config;
}

class Remat : public testing::TestWithParam<ModelConfig> {};

// Unwritten values would be equal under every policy, and so remain undetected.
TEST_P(Remat, ReadsNothingUnwritten) {
  const RematOutcome kept = outcome_of(GetParam(), layer_placements(RematPolicy::kNone), 9, 2);
  for (const double loss : kept.losses) EXPECT_TRUE(std::isfinite(loss));
  for (const float grad : kept.grads) ASSERT_TRUE(std::isfinite(grad));
}

TEST_P(Remat, PoliciesAreBitIdentical) {
  const ModelConfig config = three_layers(GetParam());
  // The kernels' own tests compare numbers of threads with each type.
  for (const auto& [threads, dtype] : {std::pair(1, DType::kF32), {2, DType::kBf16}}) {
    const RematOutcome kept =
        outcome_of(config, layer_placements(RematPolicy::kNone), 67, threads, dtype);
    for (size_t i = 1; i < kRematPolicyNames.size(); ++i) {
      const LayerPlacements placements = layer_placements(static_cast<RematPolicy>(i));
      EXPECT_EQ(outcome_of(config, placements, 67, threads, dtype), kept)
          << kRematPolicyNames[i] << " with " << threads << " threads, "
          << (dtype == DType::kBf16 ? "bf16" : "fp32");
    }
  }
}

// All choices of `custom`, and more.
std::vector<LayerPlacements> all_placements() {
  const Placement all[] = {Placement::kRemat, Placement::kDevice, Placement::kOffload};
  std::vector<LayerPlacements> result;
  for (const Placement input : {Placement::kDevice, Placement::kOffload}) {
    for (const Placement qkv : all) {
      for (const Placement context : all) {
        for (const Placement middle : all) {
          for (const Placement gate_up : all) {
            for (const Placement rest : {Placement::kRemat, Placement::kDevice})
              result.push_back({input, qkv, context, middle, gate_up, rest});
          }
        }
      }
    }
  }
  return result;
}

TEST_P(Remat, AllPlacementsAreBitIdentical) {
  const ModelConfig config = three_layers(GetParam());
  const RematOutcome kept = outcome_of(config, layer_placements(RematPolicy::kNone), 5, 1);
  const std::vector<LayerPlacements> all = all_placements();
  for (size_t i = 0; i < all.size(); i += kSanitized ? 5 : 1) {
    const LayerPlacements& placements = all[i];
    ASSERT_EQ(outcome_of(config, placements, 5, 1), kept)
        << static_cast<int>(placements.input) << static_cast<int>(placements.qkv)
        << static_cast<int>(placements.context) << static_cast<int>(placements.middle)
        << static_cast<int>(placements.gate_up) << static_cast<int>(placements.rest);
  }
}

// A single layer may keep anything: its backward pass follows its forward pass.
TEST_P(Remat, OfOneLayer) {
  ModelConfig config = GetParam();
  config.num_layers = 1;
  config.experts.first_layer = 0;
  const RematOutcome kept = outcome_of(config, layer_placements(RematPolicy::kNone), 9, 2);
  for (const RematPolicy policy : {RematPolicy::kFull, RematPolicy::kMinimalOffloaded})
    EXPECT_EQ(outcome_of(config, layer_placements(policy), 9, 2), kept);
}

INSTANTIATE_TEST_SUITE_P(
    Families, Remat,
    testing::Values(small_config(4, 2, false), small_gpt(), small_gemma(),
                    small_mixture_of_choices(), small_mixtral(), small_glam(), small_parallel(),
                    with_quantization(small_gpt(), QuantizationType::kInt8),
                    with_quantization(small_gemma(), QuantizationType::kFp8Delayed),
                    with_quantization(small_parallel(), QuantizationType::kFp8Current)));

}  // namespace
}  // namespace muster::trainer
