// Quantized training against Flax's and AQT's own GEMMs (tests/golden/make_quantization.py),
// against fp32, and against itself.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/unit/trainer_core/golden_file.h"
#include "tests/unit/trainer_core/model/test_decoder.h"
#include "tests/unit/trainer_core/model/transformer_fixture.h"
#include "trainer_core/optim/optimizer.h"

namespace muster::trainer {
namespace {

QuantizationConfig of_type(QuantizationType type, int32_t history = 4) {
  return {.type = type, .amax_history_length = history};
}
const QuantizationType kTypes[] = {QuantizationType::kInt8, QuantizationType::kFp8Delayed,
                                   QuantizationType::kFp8Current};

ModelConfig quantized(ModelConfig config, QuantizationType type, int32_t history = 4) {
  config.quantization = of_type(type, history);
  return config;
}

double largest_of(std::span<const float> values) {
  double largest = 0;
  for (const float value : values) largest = std::max(largest, std::abs(double{value}));
  return largest;
}

struct QuantizedCase {
  const char* name;
  QuantizationConfig quantization;
};

class LibraryGolden : public testing::TestWithParam<QuantizedCase> {
 protected:
  LibraryGolden() : file_("quantization.safetensors") {}

  ModelConfig config() const {
    ModelConfig config = small_config(4, 2, false);
    config.qkv_bias = config.mlp_bias = true;
    config.quantization = GetParam().quantization;
    if (config.quantization.type == QuantizationType::kFp8Delayed)
      config.quantization.amax_history_length = file_.metadata("history");
    return config;
  }
  void load_params(const TransformerPlan& plan, double factor, std::span<float> params) const {
    for (const ParamSpec& spec : plan.params) {
      std::vector<float> tensor = file_.tensor<float>("param/" + spec.name);
      for (float& value : tensor) value *= static_cast<float>(factor);
      std::ranges::copy(tensor, params.begin() + spec.offset);
    }
  }
  template <class Row>
  void expect_rows(const std::vector<Row>& rows, size_t first, std::span<const float> block,
                   const std::string& prefix, double tolerance) const {
    for (size_t i = first; i < rows.size(); ++i) {
      const std::vector<float> expected = file_.tensor<float>(prefix + rows[i].name);
      ASSERT_EQ(static_cast<int64_t>(expected.size()), rows[i].elements());
      const double floor = 1e-5;  // without RoPE a key's bias has no gradient
      for (size_t j = 0; j < expected.size(); ++j) {
        ASSERT_NEAR(block[static_cast<size_t>(rows[i].offset) + j], expected[j],
                    tolerance * std::max(largest_of(expected), floor))
            << prefix << rows[i].name << " " << j;
      }
    }
  }

  GoldenFile file_;
};

// After a step Flax's state has the scales that the step used; Muster's has those of the next step,
// which Flax computes at that step's beginning. So Muster's state after T steps equals Flax's after
// T + 1.
TEST_P(LibraryGolden, LossesGradientsAndStateEqualTheLibrarys) {
  const std::string name = GetParam().name;
  TestModel test(config(), file_.metadata("batch"), file_.metadata("seq"), RematPolicy::kFull, 2);
  const std::vector<TensorRow> rows = test.plan.rows();
  const auto factors = file_.metadata("factors").get<std::vector<double>>();
  const int steps = file_.metadata("steps").at(name);
  const int64_t scales = scaling_scales(test.plan.model);
  for (int step = 0; step < steps; ++step) {
    const std::string prefix = name + "/" + std::to_string(step) + "/";
    const std::string batch = "batch/" + std::to_string(step) + "/";
    load_params(test.plan, factors[static_cast<size_t>(step)], test.model.params());
    const auto tokens = file_.tensor<int32_t>(batch + "tokens");
    const auto targets = file_.tensor<int32_t>(batch + "targets");
    const auto weights = file_.tensor<float>(batch + "weights");
    if (scales > 0) {
      const auto first = rows.begin() + static_cast<ptrdiff_t>(test.plan.params.size());
      expect_rows(std::vector<TensorRow>(first, first + scales), 0, test.model.state(),
                  prefix + "state/", 1e-6);
    }
    const LossSum loss = test.model.forward_backward({tokens, targets, weights});
    const double expected = file_.tensor<float>(prefix + "loss")[0];
    EXPECT_NEAR(loss.loss, expected, 1e-6 * expected);
    expect_rows(test.plan.params, 0, test.model.grads(), prefix + "grad/", 2e-5);
    test.model.advance_scaling();
    if (scales > 0) {
      expect_rows(rows, test.plan.params.size() + static_cast<size_t>(scales), test.model.state(),
                  prefix + "state/", 1e-5);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Libraries, LibraryGolden,
    testing::Values(QuantizedCase{"fp8", of_type(QuantizationType::kFp8Delayed)},
                    QuantizedCase{"te_fp8_currentscaling", of_type(QuantizationType::kFp8Current)},
                    QuantizedCase{"int8",
                                  {.type = QuantizationType::kInt8, .stochastic_rounding = false}},
                    QuantizedCase{"int8_forward",
                                  {.type = QuantizationType::kInt8,
                                   .int8_weight_gradients = false,
                                   .stochastic_rounding = false}}),
    [](const auto& test) { return std::string(test.param.name); });

// Trains a model to continue a pattern, and returns its predictions.
struct Trained {
  std::vector<double> losses;
  std::vector<float> logits;
};

constexpr int32_t kTrainBatch = 4, kTrainLength = 16;
constexpr int kTrainSteps = 30;

Trained train(const ModelConfig& config, DType dtype = DType::kF32) {
  TestModel test(config, kTrainBatch, kTrainLength, RematPolicy::kFull, 2, true, dtype);
  const auto optimizer = Optimizer::make({}, ShardLayout::whole(test.plan.params));
  std::vector<float> state(static_cast<size_t>(optimizer->state_elements()));
  init_params(test.plan.params, 3, test.model.params().data());
  constexpr size_t kRows = size_t{kTrainBatch} * kTrainLength;
  std::vector<int32_t> tokens(kRows), targets(kRows);
  const std::vector<float> weights(kRows, 1);
  Trained trained;
  for (int step = 0; step <= kTrainSteps; ++step) {
    for (size_t i = 0; i < kRows; ++i) {
      const size_t at = i % kTrainLength + i / kTrainLength * 5 + static_cast<size_t>(step) * 7;
      tokens[i] = static_cast<int32_t>(at * at % 17);
      targets[i] = static_cast<int32_t>((at + 1) * (at + 1) % 17);
    }
    if (step == kTrainSteps) break;
    const Batch batch{tokens,
                      targets,
                      weights,
                      {.seed = 1, .first_sample = kTrainBatch * static_cast<uint64_t>(step)}};
    const LossSum loss = test.model.forward_backward(batch);
    trained.losses.push_back(loss.loss / loss.weight);
    const UpdateStep update{.learning_rate = 5e-3, .grad_scale = 1 / loss.weight, .t = step + 1};
    EXPECT_TRUE(
        optimizer->update(*test.ops, update, {test.model.params(), test.model.grads(), state})
            .ok());
    test.model.advance_scaling();
  }
  trained.logits.resize(kRows * static_cast<size_t>(config.vocab_size));
  test.model.all_logits(tokens, trained.logits.data());
  return trained;
}

ModelConfig band_config() {
  ModelConfig config = small_config(4, 2, false);
  config.emb_dim = 32;
  config.mlp_dim = 48;
  config.head_dim = 8;
  return config;
}

// Mean over positions of KL(softmax p || softmax q), in nats.
double divergence(const std::vector<float>& p, const std::vector<float>& q, size_t vocab) {
  double sum = 0;
  for (size_t row = 0; row < p.size(); row += vocab) {
    const auto log_sum = [&](const std::vector<float>& x) {
      double total = 0;
      for (size_t i = 0; i < vocab; ++i) total += std::exp(double{x[row + i]});
      return std::log(total);
    };
    const double lp = log_sum(p), lq = log_sum(q);
    for (size_t i = 0; i < vocab; ++i)
      sum += std::exp(p[row + i] - lp) * ((p[row + i] - lp) - (q[row + i] - lq));
  }
  return sum / static_cast<double>(p.size() / vocab);
}

TEST(QuantizedTraining, StaysCloseToFp32) {
  const Trained plain = train(band_config());
  RecordProperty("fp32",
                 std::to_string(plain.losses.front()) + " " + std::to_string(plain.losses.back()));
  EXPECT_LT(plain.losses.back(), 0.5 * plain.losses.front());  // the pattern is learnable
  for (const QuantizationType type : kTypes) {
    for (const DType dtype : {DType::kF32, DType::kBf16}) {
      const Trained trained = train(quantized(band_config(), type, 8), dtype);
      const std::string name(name_of(kQuantizationNames, type));
      double worst = 0;
      for (size_t i = 0; i < plain.losses.size(); ++i)
        worst = std::max(worst, std::abs(trained.losses[i] - plain.losses[i]));
      const double kl = divergence(plain.logits, trained.logits, 19);
      RecordProperty(name + (dtype == DType::kF32 ? "_f32" : "_bf16"),
                     std::to_string(worst) + " " + std::to_string(kl));
      const bool is_int8 = type == QuantizationType::kInt8;
      EXPECT_LT(worst, is_int8 ? 0.03 : 0.06) << name;  // losses fall from 3.7 to 0.1 nats
      EXPECT_LT(kl, is_int8 ? 2e-3 : 1e-2) << name;
      EXPECT_NE(trained.losses.back(), plain.losses.back()) << name;
    }
  }
}

// A step's scales are fixed before it, so micro-batches sum to the batch; the maximum over all of
// them is recorded.
TEST(QuantizedTraining, MicroBatchesEqualTheBatch) {
  const ModelConfig config = quantized(small_gpt(), QuantizationType::kFp8Delayed);
  constexpr int32_t kLength = 9;
  const TestBatch data(config.vocab_size, 4 * kLength);
  TestModel whole(config, 4, kLength), parts(config, 1, kLength);
  randomize_params(whole.plan, whole.model.params());
  randomize_params(parts.plan, parts.model.params());
  for (int step = 0; step < 3; ++step) {
    whole.model.forward_backward(data.view());
    for (size_t i = 0; i < 4; ++i) {
      const Batch all = data.view();
      const Batch part{all.tokens.subspan(i * kLength, kLength),
                       all.targets.subspan(i * kLength, kLength),
                       all.weights.subspan(i * kLength, kLength)};
      parts.model.forward_backward(part, i == 0 ? Accumulate::kNo : Accumulate::kYes);
    }
    const double size = largest_of(whole.model.grads());
    for (size_t i = 0; i < whole.model.grads().size(); ++i)
      ASSERT_NEAR(whole.model.grads()[i], parts.model.grads()[i], 1e-5 * size) << i;
    for (size_t i = 0; i < whole.model.amaxes().size(); ++i) {
      ASSERT_GT(whole.model.amaxes()[i], 0) << i;
      ASSERT_NEAR(whole.model.amaxes()[i], parts.model.amaxes()[i], 1e-5 * whole.model.amaxes()[i]);
    }
    whole.model.advance_scaling();
    parts.model.advance_scaling();
  }
}

TEST(QuantizedTraining, PassesChangeNoScale) {
  const ModelConfig config = quantized(small_gpt(), QuantizationType::kFp8Delayed);
  TestModel test(config, 2, 9);
  randomize_params(test.plan, test.model.params());
  const TestBatch data(config.vocab_size, 18);
  test.model.forward_backward(data.view());
  test.model.advance_scaling();
  const std::vector<float> before(test.model.state().begin(), test.model.state().end());
  test.model.forward_backward(data.view());
  const std::vector<float> amaxes(test.model.amaxes().begin(), test.model.amaxes().end());
  test.model.forward(data.view());
  EXPECT_TRUE(std::ranges::equal(test.model.state(), before));
  EXPECT_TRUE(std::ranges::equal(test.model.amaxes(), amaxes));
  test.model.advance_scaling();
  EXPECT_FALSE(std::ranges::equal(test.model.state(), before));
  test.model.reset_scaling();
  const auto scaling = test.model.state().subspan(test.model.params().size());
  const auto scales = static_cast<size_t>(scaling_scales(config));
  EXPECT_TRUE(std::ranges::all_of(scaling.first(scales), [](float x) { return x == 1; }));
  EXPECT_TRUE(std::ranges::all_of(scaling.subspan(scales), [](float x) { return x == 0; }));
}

// Decodes token by token with the trained scales. Current scaling has no such equality, because a
// scale depends on the tensor's contents.
TEST(QuantizedTraining, DecodingEqualsTheForwardPass) {
  for (const QuantizationType type : {QuantizationType::kInt8, QuantizationType::kFp8Delayed}) {
    const ModelConfig config = quantized(small_mixture_of_choices(), type);
    constexpr int32_t kLength = 11;
    TestModel test(config, 2, kLength);
    randomize_params(test.plan, test.model.params());
    const TestBatch data(config.vocab_size, 2 * kLength);
    test.model.forward_backward(data.view());
    test.model.advance_scaling();
    const auto vocab = static_cast<size_t>(config.vocab_size);
    std::vector<float> expected(data.tokens.size() * vocab);
    test.model.all_logits(data.tokens, expected.data());

    const TransformerPlan plan = plan_decoder(config, 2 * 3, cache_for(2, kLength), 1);
    Arena arena(plan.memory);
    store_state(plan, arena, test.model.state());
    TestDecoder decoder(plan, arena, *test.ops);
    std::vector<float> logits(2 * vocab);
    for (size_t at = 0; at < kLength; at += at == 0 ? 3 : 1) {
      const size_t count = at == 0 ? 3 : 1;
      std::vector<int32_t> chunk;
      for (const size_t sequence : {0, 1}) {
        for (size_t i = 0; i < count; ++i)
          chunk.push_back(data.tokens[sequence * kLength + at + i]);
      }
      decoder.extend(chunk, logits.data());
      for (size_t sequence = 0; sequence < 2; ++sequence) {
        for (size_t i = 0; i < vocab; ++i) {
          ASSERT_NEAR(logits[sequence * vocab + i],
                      expected[(sequence * kLength + at + count - 1) * vocab + i], 1e-4);
        }
      }
    }
  }
}

}  // namespace
}  // namespace muster::trainer
