// A model with bf16 activations compared with the same one in fp32, which the golden files compare
// with PyTorch.
//
// The source of the bounds: a rounding to bf16 has a relative error of at most 2^-9 = 0.002, about
// ten of them follow one another in a layer, and they are independent. Logits of size 1 then differ
// by about 0.002 sqrt(10 layers) = 0.01, and two distributions whose logits differ by e have a
// divergence of e^2 / 2. Bounds are several times the measured values, and far below the effect of
// a wrong GEMM, a missing term or sums in bf16.
#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/trainer_core/model/test_decoder.h"
#include "tests/unit/trainer_core/model/transformer_fixture.h"
#include "trainer_core/optim/optimizer.h"

namespace muster::trainer {
namespace {

constexpr int32_t kBf16Batch = 2, kBf16Length = 70;

struct Bf16Outcome {
  double loss = 0;  // mean
  std::vector<float> grads, logits;
  std::vector<int32_t> experts;  // chosen by the last layer with experts
};

// A batch in which no token has two nearly equally likely experts (of the first 60 the one with the
// widest gap, at least 0.005): rounding could otherwise choose the other one and change the result.
constexpr uint64_t kBatchStream = 14;

Bf16Outcome outcome_of(const ModelConfig& config, DType dtype, int32_t threads = 2) {
  TestModel test(config, kBf16Batch, kBf16Length, RematPolicy::kFull, threads, true, dtype);
  randomize_params(test.plan, test.model.params());
  const TestBatch data(config.vocab_size, int64_t{kBf16Batch} * kBf16Length, kBatchStream);
  const LossSum sum = test.model.forward_backward(data.view());
  Bf16Outcome outcome{.loss = sum.loss / sum.weight, .grads = {}, .logits = {}, .experts = {}};
  outcome.grads.assign(test.model.grads().begin(), test.model.grads().end());
  outcome.logits.resize(data.tokens.size() * static_cast<size_t>(config.vocab_size));
  test.model.all_logits(data.tokens, outcome.logits.data());
  for (size_t i = 0; i < test.plan.layers.size(); ++i) {
    if (!config.experts.in_layer(static_cast<int64_t>(i))) continue;
    const auto* chosen =
        static_cast<const int32_t*>(test.arena.buffer(test.plan.layers[i].chosen_experts));
    const size_t choices = data.tokens.size() * static_cast<size_t>(config.experts.per_token);
    outcome.experts.assign(chosen, chosen + choices);
  }
  return outcome;
}

std::vector<double> log_softmax(const float* logits, size_t vocab) {
  const double peak = *std::max_element(logits, logits + vocab);
  double total = 0;
  for (size_t i = 0; i < vocab; ++i) total += std::exp(logits[i] - peak);
  std::vector<double> result;
  for (size_t i = 0; i < vocab; ++i) result.push_back(logits[i] - peak - std::log(total));
  return result;
}

// Returns, for every position, the divergence of the second model's prediction from the first's.
std::vector<double> divergences(const Bf16Outcome& p, const Bf16Outcome& q, size_t vocab) {
  std::vector<double> result;
  for (size_t at = 0; at < p.logits.size(); at += vocab) {
    const std::vector<double> log_p = log_softmax(p.logits.data() + at, vocab);
    const std::vector<double> log_q = log_softmax(q.logits.data() + at, vocab);
    double sum = 0;
    for (size_t i = 0; i < vocab; ++i) sum += std::exp(log_p[i]) * (log_p[i] - log_q[i]);
    result.push_back(sum);
  }
  return result;
}

class Bf16Model : public testing::TestWithParam<ModelConfig> {};

TEST_P(Bf16Model, PredictsLikeFp32) {
  const ModelConfig& config = GetParam();
  const Bf16Outcome wide = outcome_of(config, DType::kF32),
                    narrow = outcome_of(config, DType::kBf16);
  EXPECT_NEAR(narrow.loss, wide.loss, 2e-3);
  EXPECT_NE(narrow.loss, wide.loss);
  ASSERT_EQ(narrow.experts, wide.experts) << "choose another batch";
  double mean = 0;
  const std::vector<double> of_position =
      divergences(wide, narrow, static_cast<size_t>(config.vocab_size));
  for (const double divergence : of_position) {
    EXPECT_LT(divergence, 1.2e-3);
    mean += divergence / static_cast<double>(of_position.size());
  }
  EXPECT_LT(mean, 1.5e-4);
}

// Errors of each parameter's gradient, relative to its length. Backward rounds as often as forward,
// and combines rounded values. A key's bias has no gradient but rounding, because the softmax does
// not depend on it: it may be small relative to all gradients.
TEST_P(Bf16Model, GradientsPointLikeFp32s) {
  const ModelConfig& config = GetParam();
  const Bf16Outcome wide = outcome_of(config, DType::kF32),
                    narrow = outcome_of(config, DType::kBf16);
  double all = 0;
  for (const float g : wide.grads) all += double{g} * g;
  for (const ParamSpec& spec : model_params(config)) {
    double square = 0, error = 0;
    for (int64_t i = spec.offset; i < spec.offset + spec.elements(); ++i) {
      const double g = wide.grads[static_cast<size_t>(i)];
      square += g * g;
      error += std::pow(narrow.grads[static_cast<size_t>(i)] - g, 2);
    }
    EXPECT_LT(std::sqrt(error), 0.04 * std::sqrt(square) + 0.002 * std::sqrt(all)) << spec.name;
  }
}

TEST_P(Bf16Model, HasTheSameBitsWithAnyNumberOfThreads) {
  const Bf16Outcome serial = outcome_of(GetParam(), DType::kBf16, 1);
  const Bf16Outcome parallel = outcome_of(GetParam(), DType::kBf16, 3);
  EXPECT_EQ(serial.loss, parallel.loss);
  EXPECT_EQ(serial.grads, parallel.grads);
  EXPECT_EQ(serial.logits, parallel.logits);
}

INSTANTIATE_TEST_SUITE_P(Families, Bf16Model,
                         testing::Values(small_config(4, 2, false), small_gpt(), small_gemma(),
                                         small_mixture_of_choices(), dropless(small_mixtral()),
                                         small_dense_glam(), small_parallel()));

// Memorizes one batch; returns the mean loss after every step.
std::vector<double> train(DType dtype, int64_t steps) {
  const ModelConfig config = small_config(4, 2, false);
  TestModel test(config, 2, 24, RematPolicy::kNone, 2, true, dtype);
  randomize_params(test.plan, test.model.params());
  const TestBatch data(config.vocab_size, 48);
  const auto optimizer = Optimizer::make({}, ShardLayout::whole(test.plan.params));
  std::vector<float> state(static_cast<size_t>(optimizer->state_elements()));
  std::vector<double> losses;
  for (int64_t step = 0; step < steps; ++step) {
    const LossSum sum = test.model.forward_backward(data.view());
    losses.push_back(sum.loss / sum.weight);
    const UpdateStep update{.learning_rate = 1e-2, .grad_scale = 1 / sum.weight, .t = step + 1};
    EXPECT_TRUE(
        optimizer->update(*test.ops, update, {test.model.params(), test.model.grads(), state})
            .ok());
  }
  return losses;
}

// Both learn everything, at the same pace: mean losses, from 3 down to 0.001, never differ by 0.06.
TEST(Bf16Training, ConvergesLikeFp32) {
  constexpr int64_t kSteps = 150;
  const std::vector<double> wide = train(DType::kF32, kSteps), narrow = train(DType::kBf16, kSteps);
  EXPECT_LT(wide.back(), 0.2 * wide.front());
  for (size_t i = 0; i < wide.size(); ++i) EXPECT_NEAR(narrow[i], wide[i], 0.06) << "step " << i;
}

// Activations take half the bytes; statistics, the softmax's denominators and the loss's tensors do
// not. The gradient of the logits, which replaces them in fp32, has a buffer.
TEST(Bf16Plan, HalvesOnlyActivations) {
  const auto plan_of = [](DType dtype) {
    return build_transformer_plan(small_config(4, 2, false), 2, 64, dtype,
                                  layer_placements(RematPolicy::kMinimalOffloaded), true, 1);
  };
  const TransformerPlan wide = plan_of(DType::kF32), narrow = plan_of(DType::kBf16);
  const auto& buffers = narrow.memory.buffers();
  std::map<std::string, size_t> wide_bytes;
  for (const auto& buffer : wide.memory.buffers()) wide_bytes[buffer.name] = buffer.bytes;
  ASSERT_EQ(buffers.size(), wide_bytes.size() + 1);
  wide_bytes["d_logits"] = wide_bytes.at("logits");
  size_t halved = 0;
  for (const auto& buffer : buffers) {
    const std::string& name = buffer.name;
    const bool activation = [&] {
      for (const char* suffix :
           {".input", ".normed1", ".qkv", ".context", ".middle", ".normed2", ".gate_up", ".act"}) {
        if (name.ends_with(suffix)) return true;
      }
      return name == "output" || name == "final_normed" || name == "delta" ||
             name.starts_with("d_");
    }();
    EXPECT_EQ(buffer.bytes * (activation ? 2 : 1), wide_bytes.at(name)) << name;
    halved += activation ? 1 : 0;
  }
  EXPECT_GT(halved, 10U);
}

// In decoding, matrices and caches take half, vectors and positions do not. Loading needs no
// further memory: a model of 13B in bf16 fits on a GPU of 40 GB.
TEST(Bf16Plan, DecodingStoresMatricesAndCachesRounded) {
  for (const ModelConfig& config : {small_gpt(), dropless(small_mixtral())}) {
    const TransformerPlan wide = plan_decoder(config, 16, cache_for(2, 80), 2);
    const TransformerPlan narrow = plan_decoder(config, 16, cache_for(2, 80), 2, DType::kBf16);
    size_t vectors = 0;
    for (const ParamSpec& spec : narrow.params) {
      const bool table = spec.name == "model.embed_positions.weight";
      if (spec.shape.size() == 1 || table) vectors += static_cast<size_t>(spec.elements());
    }
    const auto n = static_cast<size_t>(parameter_count(narrow.params));
    const auto bytes = [](const TransformerPlan& plan, MemoryCategory category) {
      return plan.memory.category_bytes(category);
    };
    EXPECT_EQ(bytes(narrow, MemoryCategory::kParameters), 4 * vectors + 2 * (n - vectors));
    EXPECT_EQ(bytes(wide, MemoryCategory::kParameters), 4 * n);
    EXPECT_EQ(2 * bytes(narrow, MemoryCategory::kKvCache), bytes(wide, MemoryCategory::kKvCache));
    EXPECT_EQ(narrow.memory.total_bytes() % kBufferAlignment, 0U);
    EXPECT_LE(narrow.memory.total_bytes() + 2 * (n - vectors), wide.memory.total_bytes());
  }
}

}  // namespace
}  // namespace muster::trainer
