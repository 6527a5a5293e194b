// Losses and optimizers.
#include "tests/gpu/both_backends.h"

namespace muster::trainer {
namespace {

constexpr float kLargestLogit = 20;

struct LossCase {
  int64_t rows, vocab;
  LossShape shape;
};
std::vector<LossCase> loss_cases() {
  std::vector<LossCase> cases;
  for (const LossShape shape :
       {LossShape{}, LossShape{30, 0}, LossShape{0, 1e-2}, LossShape{5, 1e-4}}) {
    cases.push_back({1, 1, shape});
    cases.push_back({3, 33, shape});
    cases.push_back({7, 1000, shape});
    cases.push_back({2, 9001, shape});
    if (large_shapes()) cases.push_back({128, 128'256, shape});
  }
  return cases;
}
// The error of a softmax of `n` fp32 logits, and of its loss and gradient, over its largest term. u
// = 2^-24.
//   sum of n positive terms    sqrt(n) u: roundings behave as if independent (Higham and Mary,
//                              "A new approach to probabilistic rounding error analysis", 2019);
//                              twice that, for a probability near 1
//   a term exp(x - peak)       relative error = absolute error of x - peak: 8 u |x|, from the cap's
//                              product and tanh (4 ulp of x together) and the difference (1 ulp
//                              of it, at most twice as large as x)
//   exp, log, product, weight  8 u: 2 ulp, 2 ulp, and four single roundings
double softmax_bound(const LossShape& shape, int64_t n) {
  constexpr double kRoundoff = 0x1p-24;
  const double largest =
      shape.soft_cap > 0 ? std::min<double>(kLargestLogit, shape.soft_cap) : kLargestLogit;
  return (2 * std::sqrt(static_cast<double>(n)) + 8 * largest + 8) * kRoundoff;
}

class Losses : public testing::TestWithParam<LossCase> {};
INSTANTIATE_TEST_SUITE_P(Shapes, Losses, testing::ValuesIn(loss_cases()));

TEST_P(Losses, CrossEntropy) {
  const auto& [rows, vocab, shape] = GetParam();
  const double bound = softmax_bound(shape, vocab);
  Both logits = Both::random(DType::kF32, {rows, vocab}, 1, kLargestLogit);
  Both targets = Both::ids({rows}, static_cast<int32_t>(vocab), 2);
  Both weights = Both::random(DType::kF32, {rows}, 3), losses(DType::kF32, {rows});
  on_both([&](Ops& ops, Side side) {
    ops.cross_entropy(shape, logits.on(side), targets.on(side), weights.on(side), losses.on(side));
  });
  expect_same(losses, bound, "losses");
  if (vocab > 1) expect_same(logits, bound, "logits");
}

// In place, and rounded to bf16 beside the logits: an element may be rounded to either neighbour.
TEST_P(Losses, CrossEntropyBackward) {
  const auto& [rows, vocab, shape] = GetParam();
  for (const DType type : {DType::kF32, DType::kBf16}) {
    const double bound = softmax_bound(shape, vocab);
    Both logits = Both::random(DType::kF32, {rows, vocab}, 1, kLargestLogit);
    Both half(DType::kBf16, {rows, vocab});
    Both& gradient = type == DType::kF32 ? logits : half;
    Both targets = Both::ids({rows}, static_cast<int32_t>(vocab), 2);
    Both weights = Both::random(DType::kF32, {rows}, 3), losses(DType::kF32, {rows});
    on_both([&](Ops& ops, Side side) {
      ops.cross_entropy_backward(shape, logits.on(side), targets.on(side), weights.on(side),
                                 losses.on(side), gradient.on(side));
    });
    expect_same(losses, bound, "losses");
    if (vocab > 1) expect_same(gradient, bound + (type == DType::kF32 ? 0 : 0x1p-8), "gradient");
  }
}

// A slice's gradient in fp64, from its capped logits.
struct ExactGradient {
  std::vector<double> values;
  // The largest of the terms of which an element is the difference; they may nearly cancel.
  double largest_term = 0;

  ExactGradient(const LossShape& shape, int64_t first, const std::vector<double>& logits,
                const std::vector<double>& targets, const std::vector<double>& weights) {
    const size_t width = logits.size() / weights.size();
    for (size_t row = 0; row < weights.size(); ++row) {
      const double* x = &logits[row * width];
      double total = 0;
      for (size_t i = 0; i < width; ++i) total += std::exp(x[i]);
      const double factor = weights[row] * (1 + 2 * shape.z_loss * std::log(total)) / total;
      for (size_t i = 0; i < width; ++i) {
        const double t = shape.soft_cap > 0 ? x[i] / shape.soft_cap : 0, slope = 1 - t * t;
        const bool is_target =
            static_cast<int64_t>(targets[row]) == first + static_cast<int64_t>(i);
        const double rises = std::exp(x[i]) * factor * slope;
        const double falls = is_target ? weights[row] * slope : 0;
        values.push_back(rises - falls);
        largest_term = std::max({largest_term, std::abs(rises), std::abs(falls)});
      }
    }
  }
  double error(const std::vector<double>& found) const {
    double difference = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      const double apart = std::abs(found[i] - values[i]);
      difference = std::isfinite(apart) ? std::max(difference, apart) : INFINITY;
    }
    return difference / largest_term;
  }
};

TEST_P(Losses, OfSlices) {
  const auto& [rows, vocab, shape] = GetParam();
  const int64_t first = vocab / 3, width = vocab - first;
  const VocabularySlice slice{first, vocab};
  Both logits = Both::random(DType::kF32, {rows, width}, 1, kLargestLogit);
  Both targets = Both::ids({rows}, static_cast<int32_t>(vocab), 2);
  Both weights = Both::random(DType::kF32, {rows}, 3), losses(DType::kF32, {rows});
  Both sums(DType::kF32, {1, rows, kLogitSums});
  Both slices = Both::random(DType::kF32, {2, rows, kLogitSums}, 4);
  std::vector<float> other;
  for (int64_t i = 0; i < slices.elements(); ++i)
    other.push_back(i % 3 == 1 ? 2.5F : 0.25F * static_cast<float>(i % 5));
  slices.set(other);
  on_both([&](Ops& ops, Side side) {
    ops.logit_sums(shape, slice, logits.on(side), targets.on(side), sums.on(side));
    ops.sliced_cross_entropy(shape, slices.on(side), weights.on(side), losses.on(side));
  });
  const double bound = softmax_bound(shape, width);
  expect_same(sums, bound, "sums");
  expect_same(losses, bound, "losses");
  const ExactGradient exact(shape, first, logits.values(Side::kCpu), targets.values(Side::kCpu),
                            weights.values(Side::kCpu));
  Both half(DType::kBf16, {rows, width});
  on_both([&](Ops& ops, Side side) {
    ops.sliced_cross_entropy_backward(shape, slice, logits.on(side), targets.on(side),
                                      sums.on(side), weights.on(side), losses.on(side),
                                      half.on(side));
    ops.sliced_cross_entropy_backward(shape, slice, logits.on(side), targets.on(side),
                                      sums.on(side), weights.on(side), losses.on(side),
                                      logits.on(side));
  });
  // A row with a single logit leaves only rounding errors, or z-loss: the backends are compared
  // with the exact gradient, not with each other.
  for (const Side side : {Side::kCpu, Side::kGpu}) {
    EXPECT_LE(exact.error(logits.values(side)), bound) << (side == Side::kCpu ? "CPU" : "GPU");
    EXPECT_LE(exact.error(half.values(side)), bound + 0x1p-8)
        << (side == Side::kCpu ? "CPU" : "GPU");
  }
  expect_same(losses, bound, "losses of the gradient's pass");
}

class Optimizers : public testing::TestWithParam<int64_t> {};
INSTANTIATE_TEST_SUITE_P(Sizes, Optimizers, testing::Values(0, 1, 1023, 20'000));

TEST_P(Optimizers, Adam) {
  const int64_t n = GetParam();
  const AdamStep step{.learning_rate = 1e-3,
                      .b1 = 0.9,
                      .b2 = 0.95,
                      .eps = 1e-8,
                      .eps_root = 1e-12,
                      .weight_decay = 0.1,
                      .grad_scale = 0.3,
                      .bias_correction1 = 0.271,
                      .bias_correction2 = 0.142};
  Both grads = Both::random(DType::kF32, {n}, 1), params = Both::random(DType::kF32, {n}, 2);
  Both m = Both::random(DType::kF32, {n}, 3), v = Both::filled(DType::kF32, {n}, 0.01F);
  on_both([&](Ops& ops, Side side) {
    ops.adam(step, grads.on(side), params.on(side), m.on(side), v.on(side));
    ops.adam_direction(step, grads.on(side), m.on(side), v.on(side));
    ops.apply_update(0.01, 0.999, grads.on(side), params.on(side));
  });
  expect_same(m, 1e-6, "m");
  expect_same(v, 1e-6, "v");
  expect_same(grads, 1e-6, "direction");
  expect_same(params, 1e-6, "params");
}

// Rounding to nearest, and stochastic rounding, for which both draw the same words: values that
// differ in their last bits may be rounded apart.
TEST_P(Optimizers, AdamWithMomentsInBf16) {
  const int64_t n = GetParam();
  for (const bool by_chance : {false, true}) {
    AdamStep step{.learning_rate = 1e-3, .b1 = 0.9, .b2 = 0.95, .eps = 1e-8, .grad_scale = 0.3};
    if (by_chance) step.noise = {.key = 7, .update = uint64_t{5} << 33, .first = 1021};
    Both grads = Both::random(DType::kF32, {n}, 1), params = Both::random(DType::kF32, {n}, 2);
    Both m = Both::random(DType::kBf16, {n}, 3), v = Both::filled(DType::kF32, {n}, 0.01F);
    on_both([&](Ops& ops, Side side) {
      ops.adam(step, grads.on(side), params.on(side), m.on(side), v.on(side));
      ops.adam_direction(step, grads.on(side), m.on(side), v.on(side));
    });
    const auto on_cpu = m.values(Side::kCpu), on_gpu = m.values(Side::kGpu);
    int64_t apart = 0;
    for (size_t i = 0; i < on_cpu.size(); ++i) apart += on_cpu[i] == on_gpu[i] ? 0 : 1;
    EXPECT_LE(apart, n / 500) << "of " << n;
    expect_same(m, 1e-2, "m");
    expect_same(v, 1e-6, "v");
    expect_same(params, 1e-6, "params");
  }
}

// Each parameter is rounded once: values that differ in their last bits may be rounded apart.
TEST_P(Optimizers, ParametersInBf16) {
  const int64_t n = GetParam();
  const AdamStep step{.learning_rate = 1e-2, .b1 = 0.9, .b2 = 0.95, .eps = 1e-8, .weight_decay = 1};
  for (const DType m_type : {DType::kF32, DType::kBf16}) {
    Both grads = Both::random(DType::kF32, {n}, 1), params = Both::random(DType::kBf16, {n}, 2);
    Both m = Both::random(m_type, {n}, 3), v = Both::filled(DType::kF32, {n}, 0.01F);
    on_both([&](Ops& ops, Side side) {
      ops.adam(step, grads.on(side), params.on(side), m.on(side), v.on(side));
      ops.apply_update(0.01, 0.999, grads.on(side), params.on(side));
    });
    const auto on_cpu = params.values(Side::kCpu), on_gpu = params.values(Side::kGpu);
    int64_t apart = 0;
    for (size_t i = 0; i < on_cpu.size(); ++i) apart += on_cpu[i] == on_gpu[i] ? 0 : 1;
    EXPECT_LE(apart, n / 500) << "of " << n;
    expect_same(params, 1e-2, "params");
    expect_same(v, 1e-6, "v");
  }
}

TEST_P(Optimizers, Adafactor) {
  const int64_t n = GetParam();
  const AdafactorStep step{.decay = 0.8, .eps = 1e-30, .grad_scale = 0.5};
  Both grads = Both::random(DType::kF32, {n}, 1), v = Both::filled(DType::kF32, {n}, 0.2F);
  on_both([&](Ops& ops, Side side) { ops.adafactor_direction(step, grads.on(side), v.on(side)); });
  expect_same(v, 1e-6, "v");
  expect_same(grads, 1e-6, "direction");
}

TEST(FactoredAdafactor, OfAMatrix) {
  constexpr int64_t kRows = 37, kColumns = 301;
  const AdafactorStep step{.decay = 0.8, .eps = 1e-30, .grad_scale = 0.5};
  Both grads = Both::random(DType::kF32, {kRows, kColumns}, 1, 1, true);
  Both rows = Both::filled(DType::kF32, {kRows}, 0.3F);
  Both columns = Both::filled(DType::kF32, {kColumns}, 0.4F);
  std::vector<double> row_sums[2], column_sums[2];
  on_both([&](Ops& ops, Side side) {
    auto& of_rows = row_sums[static_cast<size_t>(side)];
    auto& of_columns = column_sums[static_cast<size_t>(side)];
    of_rows.assign(kRows, 1.0);
    of_columns.assign(kColumns, 2.0);
    ops.add_squares(grads.on(side), of_rows, of_columns);
    ops.adafactor_factors(step, of_rows, of_columns, rows.on(side), columns.on(side));
    ops.adafactor_factored_direction(step, grads.on(side), rows.on(side), 0, columns.on(side), 0);
  });
  for (size_t i = 0; i < kRows; ++i) EXPECT_NEAR(row_sums[0][i], row_sums[1][i], 1e-5);
  for (size_t i = 0; i < kColumns; ++i) EXPECT_NEAR(column_sums[0][i], column_sums[1][i], 1e-5);
  expect_same(rows, 1e-6, "rows");
  expect_same(columns, 1e-6, "columns");
  expect_same(grads, 2e-6, "direction");
}

}  // namespace
}  // namespace muster::trainer
