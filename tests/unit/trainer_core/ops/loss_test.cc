// Cross-entropy, Adam's kernel, and the elementwise and reducing operations.
#include <cstring>

#include "tests/unit/trainer_core/ops/ops_fixture.h"

namespace muster::trainer {
namespace {

class CrossEntropy : public testing::TestWithParam<LossShape> {};

TEST_P(CrossEntropy, LossesAndGradients) {
  const LossShape& shape = GetParam();
  for (const int64_t vocab : {2, 16, 37, 1000}) {
    constexpr int64_t kRows = 4;
    const auto ops = cpu_ops(2);
    Values logits = Values::random({kRows, vocab}, 1, 9), losses({kRows});
    Ids targets(kRows, static_cast<int32_t>(vocab), 2);
    Values weights({kRows}, 1);
    weights[1] = 0;
    weights[2] = 0.5F;
    const auto capped = [&](double x) {
      return shape.soft_cap > 0 ? shape.soft_cap * std::tanh(x / shape.soft_cap) : x;
    };
    // Returns the loss of one row with logits x.
    const auto row_loss = [&](int64_t row, const std::vector<double>& x) {
      double total = 0;
      for (const double logit : x) total += std::exp(capped(logit));
      const double lse = std::log(total);
      return weights[row] *
             (lse - capped(x[static_cast<size_t>(targets[row])]) + shape.z_loss * lse * lse);
    };
    const std::vector<double> before = as_double(logits);
    std::vector<double> expected, gradient;
    for (int64_t row = 0; row < kRows; ++row) {
      const auto first = before.begin() + row * vocab;
      const std::vector<double> x(first, first + vocab);
      expected.push_back(row_loss(row, x));
      for (const double slope : derivative(x, [&](const auto& at) { return row_loss(row, at); }))
        gradient.push_back(slope);
    }
    Values again = logits, unrounded = logits, same({kRows});
    HalfValues half(logits);
    ops->cross_entropy(shape, logits, targets, weights, losses);
    expect_near(losses, expected, 1e-6);
    ops->cross_entropy_backward(shape, again, targets, weights, same, again);
    EXPECT_EQ(same, losses);
    expect_near(again, gradient, 2e-6);
    // A gradient in bf16 is the one in fp32, rounded once.
    ops->cross_entropy_backward(shape, unrounded, targets, weights, same, half);
    EXPECT_EQ(same, losses);
    EXPECT_EQ(half.widened(), HalfValues(again).widened());
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, CrossEntropy,
                         testing::Values(LossShape{}, LossShape{0, 1e-2}, LossShape{3, 0},
                                         LossShape{30, 1e-3}));

TEST(CrossEntropyRange, ExtremeLogitsStayFinite) {
  const auto ops = cpu_ops(1);
  Values logits({2, 3}), losses({2}), weights({2}, 1);
  Ids targets(2, 1, 0);
  const float values[] = {-3e38F, 3e38F, 0, 1e5F, -1e5F, 99'999};
  std::copy_n(values, 6, &logits[0]);
  ops->cross_entropy_backward({}, logits, targets, weights, losses, logits);
  EXPECT_NEAR(losses[1], std::log1p(std::exp(-1.0)), 1e-6);
  for (int64_t i = 0; i < 6; ++i) EXPECT_TRUE(std::isfinite(logits[i])) << i;
}

TEST(CrossEntropyDeathTest, TargetOutsideTheVocabulary) {
  const auto ops = cpu_ops(1);
  Values logits({3, 2}), losses({3}), weights({3}, 1);
  Ids targets(3, 100, 1);
  EXPECT_DEATH((ops->cross_entropy({}, logits, targets, weights, losses), ops->synchronize()),
               "target .* of ");
}

TEST(Adam, FollowsTheFormula) {
  constexpr int64_t kSize = 10'003;
  const AdamStep step{.learning_rate = 0.01,
                      .b1 = 0.9,
                      .b2 = 0.95,
                      .eps = 1e-6,
                      .eps_root = 1e-7,
                      .weight_decay = 0.1,
                      .grad_scale = 0.25,
                      .bias_correction1 = 0.19,
                      .bias_correction2 = 0.0975};
  Values grads = Values::random({kSize}, 1), params = Values::random({kSize}, 2);
  Values m = Values::random({kSize}, 3, 0.1F), v = Values::random({kSize}, 4, 0.1F);
  for (int64_t i = 0; i < kSize; ++i) v[i] = std::abs(v[i]);
  std::vector<double> p_expected, m_expected, v_expected;
  for (int64_t i = 0; i < kSize; ++i) {
    const double g = 0.25 * grads[i];
    m_expected.push_back(0.9 * m[i] + 0.1 * g);
    v_expected.push_back(0.95 * v[i] + 0.05 * g * g);
    const double update =
        m_expected.back() / 0.19 / (std::sqrt(v_expected.back() / 0.0975 + 1e-7) + 1e-6);
    p_expected.push_back(params[i] - 0.01 * (update + 0.1 * params[i]));
  }
  cpu_ops(2)->adam(step, grads, params, m, v);
  expect_near(params, p_expected, 1e-6);
  expect_near(m, m_expected, 1e-6);
  expect_near(v, v_expected, 1e-6);
}

TEST(Elementwise, FillCopyScale) {
  for (const int64_t n : {1, 15, 16, 33, 50'001}) {
    const auto ops = cpu_ops(3);
    Values y = Values::random({n}, 2), z({n});
    ops->copy(y, z);
    EXPECT_EQ(y, z);
    ops->fill(z, 0.5F);
    EXPECT_EQ(z, Values({n}, 0.5F));
    ops->scale(-3, z);
    EXPECT_EQ(z, Values({n}, -1.5F));
  }
}

TEST(Reductions, DoNotDependOnTheNumberOfThreads) {
  for (const int64_t n : {1, 7, 255, 100'003}) {
    Values x = Values::random({n}, 1);
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < n; ++i) {
      sum += x[i];
      squares += double{x[i]} * x[i];
    }
    const auto one = cpu_ops(1), three = cpu_ops(3);
    EXPECT_NEAR(one->sum(x), sum, 1e-9);
    EXPECT_NEAR(one->sum_of_squares(x), squares, 1e-12 * squares);
    EXPECT_EQ(one->sum(x), three->sum(x));
    EXPECT_EQ(one->sum_of_squares(x), three->sum_of_squares(x));
  }
}

TEST(Memory, UploadAndDownload) {
  const auto ops = cpu_ops(1);
  const std::vector<float> from{1, 2, 3};
  std::vector<float> to(3);
  Values device({3});
  ops->upload(from.data(), device);
  ops->download(device, to.data());
  ops->synchronize();
  EXPECT_EQ(from, to);
}

}  // namespace
}  // namespace muster::trainer
