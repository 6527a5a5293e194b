// Dropout in the model: gradients with a fixed mask, and independence of the mask.
#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/trainer_core/model/finite_differences.h"
#include "tests/unit/trainer_core/model/transformer_fixture.h"

namespace muster::trainer {
namespace {

constexpr int32_t kDroppedBatch = 4, kDroppedLength = 9;

ModelConfig dropping(ModelConfig config, double rate = 0.3, double of_input = 0.2) {
  config.dropout_rate = rate;
  config.input_dropout_rate = of_input;
  return config;
}

// A model with random weights, and a batch for it.
struct Trial {
  explicit Trial(const ModelConfig& config, RematPolicy policy = RematPolicy::kNone,
                 int32_t threads = 1, int32_t batch = kDroppedBatch)
      : test(config, batch, kDroppedLength, policy, threads),
        data(config.vocab_size, int64_t{kDroppedBatch} * kDroppedLength) {
    randomize_params(test.plan, test.model.params());
  }

  // Returns sequences [first, first + count) as samples from `sample` on.
  Batch part(size_t first, size_t count, uint64_t sample) const {
    const size_t from = first * kDroppedLength, rows = count * kDroppedLength;
    return {std::span(data.tokens).subspan(from, rows),
            std::span(data.targets).subspan(from, rows),
            std::span(data.weights).subspan(from, rows),
            {5, sample}};
  }
  Batch all(uint64_t sample = 100) const { return part(0, kDroppedBatch, sample); }
  std::vector<float> grads() { return {test.model.grads().begin(), test.model.grads().end()}; }

  TestModel test;
  TestBatch data;
};

class Dropout : public testing::TestWithParam<ModelConfig> {};

// Compares with the loss of forward_backward(), whose masks are fixed by the samples.
TEST_P(Dropout, GradientsOfAFixedMask) {
  Trial trial(dropping(GetParam()));
  trial.test.model.forward_backward(trial.all());
  expect_gradients_of(trial.test,
                      [&] { return trial.test.model.forward_backward(trial.all()).loss; });
}

TEST_P(Dropout, IsTheSameUnderEveryRematPolicy) {
  const ModelConfig config = dropping(GetParam());
  Trial kept(config);
  const double loss = kept.test.model.forward_backward(kept.all()).loss;
  for (const int32_t threads : {1, 2}) {
    for (size_t i = 0; i < kRematPolicyNames.size(); ++i) {
      Trial trial(config, static_cast<RematPolicy>(i), threads);
      // So small a model is computed identically with two threads.
      EXPECT_EQ(trial.test.model.forward_backward(trial.all()).loss, loss) << kRematPolicyNames[i];
      EXPECT_EQ(trial.grads(), kept.grads()) << kRematPolicyNames[i];
    }
  }
}

TEST_P(Dropout, FollowsTheSamplesAndNotTheBatch) {
  const ModelConfig config = dropping(GetParam());
  Trial whole(config), half(config, RematPolicy::kNone, 1, kDroppedBatch / 2);
  const double loss = whole.test.model.forward_backward(whole.all()).loss;
  const double first = half.test.model.forward_backward(half.part(0, 2, 100)).loss;
  const double second =
      half.test.model.forward_backward(half.part(2, 2, 102), Accumulate::kYes).loss;
  EXPECT_NEAR(first + second, loss, 1e-6 * loss);
  const std::vector<float> expected = whole.grads(), added = half.grads();
  const double largest = *std::ranges::max_element(expected);
  for (size_t i = 0; i < expected.size(); ++i)
    ASSERT_NEAR(added[i], expected[i], 3e-6 * largest + 1e-6) << i;
  // Other samples have other masks.
  EXPECT_NE(whole.test.model.forward_backward(whole.all(104)).loss, loss);
}

TEST_P(Dropout, IsNotAppliedInEvaluation) {
  Trial drops(dropping(GetParam())), plain(GetParam());
  const double loss = plain.test.model.forward(plain.all()).loss;
  EXPECT_EQ(drops.test.model.forward(drops.all()).loss, loss);
  EXPECT_NE(drops.test.model.forward_backward(drops.all()).loss, loss);
  EXPECT_EQ(drops.test.model.forward(drops.all()).loss, loss);
}

// Each rate has an effect by itself.
TEST_P(Dropout, HasTwoRates) {
  Trial plain(GetParam());
  const double loss = plain.test.model.forward_backward(plain.all()).loss;
  Trial layers(dropping(GetParam(), 0.3, 0)), input(dropping(GetParam(), 0, 0.3));
  const double of_layers = layers.test.model.forward_backward(layers.all()).loss;
  const double of_input = input.test.model.forward_backward(input.all()).loss;
  EXPECT_NE(of_layers, loss);
  EXPECT_NE(of_input, loss);
  EXPECT_NE(of_input, of_layers);
}

INSTANTIATE_TEST_SUITE_P(Families, Dropout,
                         testing::Values(small_config(4, 2, false), small_gpt(), small_gemma(),
                                         small_mixture_of_choices(), small_mixtral(),
                                         small_dense_glam(), small_parallel()));

}  // namespace
}  // namespace muster::trainer
