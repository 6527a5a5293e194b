// Norms, RoPE, biases, fused GEMMs and the embeddings against fp64 references and their
// differences; op_cases.h has the elementwise operations.
#include "tests/unit/trainer_core/ops/op_cases.h"
#include "tests/unit/trainer_core/ops/ops_fixture.h"
#include "trainer_core/ops/workspace.h"

namespace muster::trainer {
namespace {

constexpr NormShape kNorms[] = {{NormType::kRms, 1e-5, 0},
                                {NormType::kRms, 1e-3, 1},
                                {NormType::kLayer, 1e-5, 0},
                                {NormType::kLayer, 1e-3, 1}};

// `weights` is the gain and behind it the bias, which kRms ignores.
std::vector<double> norm_reference(const NormShape& shape, const std::vector<double>& x,
                                   const std::vector<double>& weights) {
  std::vector<double> y;
  const size_t width = weights.size() / 2;
  const bool layer = shape.type == NormType::kLayer;
  for (size_t row = 0; row < x.size() / width; ++row) {
    double mean = 0, square = 0;
    for (size_t i = 0; layer && i < width; ++i)
      mean += x[row * width + i] / static_cast<double>(width);
    for (size_t i = 0; i < width; ++i) square += std::pow(x[row * width + i] - mean, 2);
    const double rstd = 1 / std::sqrt(square / static_cast<double>(width) + shape.eps);
    for (size_t i = 0; i < width; ++i) {
      const double normed = (x[row * width + i] - mean) * rstd;
      y.push_back(normed * (shape.gain_offset + weights[i]) + (layer ? weights[width + i] : 0));
    }
  }
  return y;
}

// Both parameters of a norm in one piece of memory.
struct TestWeights {
  explicit TestWeights(Values& both, int64_t width)
      : weights{Tensor::f32(&both[0], {width}), Tensor::f32(&both[width], {width})} {}
  NormWeights weights;
};

double dot(const std::vector<double>& a, const Values& b) {
  double sum = 0;
  for (int64_t i = 0; i < b.size(); ++i) sum += a[static_cast<size_t>(i)] * b[i];
  return sum;
}

class LayerOps : public testing::TestWithParam<std::tuple<int, int>> {
 protected:
  int64_t width() const { return std::get<0>(GetParam()); }
  std::unique_ptr<Ops> ops_ = cpu_ops(std::get<1>(GetParam()));
};

TEST_P(LayerOps, Norm) {
  constexpr int64_t kRows = 5;
  for (const NormShape& shape : kNorms) {
    Values x = Values::random({kRows, width()}, 1), both = Values::random({2 * width()}, 2);
    const NormWeights weights = TestWeights(both, width()).weights;
    Values y({kRows, width()}), stats({shape.stats(kRows)});
    ops_->norm(shape, x, weights, y, stats);
    expect_near(y, norm_reference(shape, as_double(x), as_double(both)), 2e-6);

    // Adding first gives the same bits as the norm of the stored sum, also in place.
    Values delta = Values::random({kRows, width()}, 3), sum({kRows, width()}), y2({kRows, width()});
    ops_->add_norm(shape, x, delta, weights, sum, y2, stats);
    ops_->norm(shape, sum, weights, y, stats);
    EXPECT_EQ(y, y2);
    ops_->add_norm(shape, x, delta, weights, x, y2, stats);
    EXPECT_EQ(x, sum);
    EXPECT_EQ(y, y2);
  }
}

TEST_P(LayerOps, NormBackward) {
  for (const NormShape& shape : kNorms) {
    for (const int64_t rows : {1, 3, 200}) {
      Values x = Values::random({rows, width()}, 1), both = Values::random({2 * width()}, 2);
      const NormWeights weights = TestWeights(both, width()).weights;
      Values dy = Values::random({rows, width()}, 3), y({rows, width()}),
             stats({shape.stats(rows)});
      ops_->norm(shape, x, weights, y, stats);
      Values dx({rows, width()}, 1), d_both({2 * width()}, 0);
      const NormWeights d_weights = TestWeights(d_both, width()).weights;
      Scratch scratch(cpu_norm_backward_elements(width()));
      const auto backward = [&](const Tensor& to, Accumulate accumulate) {
        ops_->norm_backward(shape, dy, x, weights, stats, to, d_weights, accumulate, scratch);
      };
      backward(dx, Accumulate::kNo);
      const std::vector<double> x64 = as_double(x), both64 = as_double(both);
      expect_near(
          d_both,
          derivative(both64, [&](const auto& w) { return dot(norm_reference(shape, x64, w), dy); }),
          2e-5);
      const Values once = d_both;
      Values again({rows, width()});
      backward(again, Accumulate::kYes);
      for (int64_t i = 0; i < once.size(); ++i) ASSERT_EQ(d_both[i], 2 * once[i]);
      if (rows > 3) continue;  // the reference is quadratic
      std::vector<double> expected =
          derivative(x64, [&](const auto& v) { return dot(norm_reference(shape, v, both64), dy); });
      for (double& value : expected) value += 1;  // dx is added to
      // Two nearly equal elements make LayerNorm steep: the gradient exceeds the precision of its
      // inputs.
      expect_near(dx, expected, width() > 2 ? 5e-5 : 1e-3);
    }
  }
}

TEST_P(LayerOps, Bias) {
  for (const int64_t rows : {1, 5, 300}) {
    Values x = Values::random({rows, width()}, 1), bias = Values::random({width()}, 2);
    const Values before = x;
    ops_->add_bias(bias, x);
    std::vector<double> sums(static_cast<size_t>(width()));
    for (int64_t i = 0; i < x.size(); ++i) {
      ASSERT_EQ(x[i], before[i] + bias[i % width()]);
      sums[static_cast<size_t>(i % width())] += x[i];
    }
    Values dbias({width()}, 7);
    Scratch scratch(cpu_bias_backward_elements(width()));
    ops_->bias_backward(x, dbias, Accumulate::kNo, scratch);
    expect_near(dbias, sums, 2e-6);
    const Values once = dbias;
    ops_->bias_backward(x, dbias, Accumulate::kYes, scratch);
    for (int64_t i = 0; i < once.size(); ++i) ASSERT_EQ(dbias[i], 2 * once[i]);
  }
}

// y = x wᵀ + bias and f(y); and of d the gradient d v f'(y), with its sum over rows.
TEST_P(LayerOps, FusedProducts) {
  constexpr int64_t kRows = 4, kIn = 5;
  Values x = Values::random({kRows, kIn}, 1), w = Values::random({width(), kIn}, 2);
  Values bias = Values::random({width()}, 3), v = Values::random({kIn, width()}, 4);
  Scratch scratch(cpu_bias_backward_elements(width()));
  const auto product = [&](const Values& right, bool transposed, int64_t row, int64_t column) {
    double sum = 0;
    for (int64_t k = 0; k < kIn; ++k)
      sum += double{x[row * kIn + k]} * right[transposed ? column * kIn + k : k * width() + column];
    return sum;
  };
  for (const ActivationRow& row_of_kind : kActivationRows) {
    const Activation kind = row_of_kind.activation;
    Values pre({kRows, width()}, 7), c({kRows, width()}, 7), sums({kRows, width()}, 7);
    ops_->fused_matmul(x, Transpose::kNo, w, Transpose::kYes, sums, {.bias = bias});
    ops_->fused_matmul(
        x, Transpose::kNo, w, Transpose::kYes, c,
        {.bias = bias, .activate = Epilogue::Activate::kForward, .activation = kind, .pre = pre});
    Values d({kRows, width()}, 7), dbias({width()}, 7), added({width()}, 7);
    Epilogue backward{.activate = Epilogue::Activate::kBackward,
                      .activation = kind,
                      .pre = pre,
                      .dbias = dbias,
                      .workspace = scratch};
    ops_->fused_matmul(x, Transpose::kNo, v, Transpose::kNo, d, backward);
    backward.dbias = added;
    backward.accumulate = Accumulate::kYes;
    ops_->fused_matmul(x, Transpose::kNo, v, Transpose::kNo, d, backward);
    std::vector<double> expected, activated, gradient, column_sums(static_cast<size_t>(width()));
    for (int64_t row = 0; row < kRows; ++row) {
      for (int64_t i = 0; i < width(); ++i) {
        const double y = product(w, true, row, i) + bias[i];
        expected.push_back(y);
        activated.push_back(activation_reference(kind, y));
        constexpr double kStep = 1e-6;
        const double slope =
            (activation_reference(kind, y + kStep) - activation_reference(kind, y - kStep)) /
            (2 * kStep);
        gradient.push_back(product(v, false, row, i) * slope);
        column_sums[static_cast<size_t>(i)] += gradient.back();
      }
    }
    expect_near(sums, expected, 2e-6);
    expect_near(pre, expected, 2e-6);
    expect_near(c, activated, 2e-6);
    expect_near(d, gradient, 5e-6);
    expect_near(dbias, column_sums, 5e-6);
    for (double& sum : column_sums) sum += 7;
    expect_near(added, column_sums, 5e-6);
  }
}

TEST_P(LayerOps, Positions) {
  constexpr int64_t kSequences = 3, kLength = 4, kPositions = 6;
  Values table = Values::random({kPositions, width()}, 1);
  Values x = Values::random({kSequences * kLength, width()}, 2);
  const Values before = x;
  ops_->add_positions(table, {Positions::first(kLength)}, {}, x);
  std::vector<double> sums(static_cast<size_t>(kPositions * width()));
  for (int64_t i = 0; i < x.size(); ++i) {
    const int64_t at = i / width() % kLength * width() + i % width();
    ASSERT_EQ(x[i], before[i] + table[at]);
    sums[static_cast<size_t>(at)] += x[i];
  }
  Values dtable({kPositions, width()}, 7);
  Scratch keys(row_sort_elements(kSequences * kLength));
  ops_->positions_backward(x, {Positions::first(kLength)}, {}, dtable, Accumulate::kNo, keys);
  expect_near(dtable, sums, 1e-6);
  ops_->positions_backward(x, {Positions::first(kLength)}, {}, dtable, Accumulate::kYes, keys);
  for (double& sum : sums) sum *= 2;
  expect_near(dtable, sums, 1e-6);
}

INSTANTIATE_TEST_SUITE_P(Widths, LayerOps,
                         testing::Combine(testing::Values(2, 15, 16, 37, 64),
                                          testing::Values(1, 3)));

class Rope : public testing::TestWithParam<RopePairs> {};

TEST_P(Rope, RotatesQueriesAndKeysByPosition) {
  const bool halves = GetParam() == RopePairs::kHalves;
  const AttentionShape shape{.batch = 2, .seq_len = 5, .heads = 3, .kv_heads = 1, .head_dim = 6};
  const auto ops = cpu_ops(2);
  Values qkv = Values::random({10, shape.qkv_width()}, 1), cos({5, 3}), sin({5, 3});
  for (int64_t i = 0; i < 15; ++i) {
    const double angle =
        static_cast<double>(i / 3) * std::pow(100.0, -2.0 * static_cast<double>(i % 3) / 6);
    cos[i] = static_cast<float>(std::cos(angle));
    sin[i] = static_cast<float>(std::sin(angle));
  }
  const Values before = qkv;
  ops->rope(shape, cos, sin, GetParam(), RopeDirection::kForward, qkv);
  for (int64_t row = 0; row < 10; ++row) {
    for (int64_t column = 0; column < shape.qkv_width(); ++column) {
      const int64_t head = column / 6, i = column % 6;
      const int64_t at = row * shape.qkv_width() + column, position = row % 5;
      double expected = before[at];
      if (head < 4) {
        const int64_t pair = halves ? i % 3 : i / 2, away = halves ? 3 : 1;
        const bool first = halves ? i < 3 : i % 2 == 0;
        const float c = cos[position * 3 + pair], s = sin[position * 3 + pair];
        expected =
            first ? before[at] * c - before[at + away] * s : before[at] * c + before[at - away] * s;
      }
      ASSERT_NEAR(qkv[at], expected, 1e-6) << row << ", " << column;
    }
  }
  // Backward is the transpose of a rotation: its inverse.
  ops->rope(shape, cos, sin, GetParam(), RopeDirection::kBackward, qkv);
  expect_near(qkv, as_double(before), 1e-6);
}

INSTANTIATE_TEST_SUITE_P(Pairs, Rope, testing::Values(RopePairs::kHalves, RopePairs::kInterleaved));

TEST(Embedding, GathersAndScatters) {
  constexpr int64_t kRows = 40, kWidth = 7, kVocab = 5;
  for (const auto& [threads, scale] : {std::pair(1, 1.0F), std::pair(2, 2.5F)}) {
    const auto ops = cpu_ops(threads);
    Ids tokens(kRows, kVocab, 1);
    Values table = Values::random({kVocab, kWidth}, 2), out({kRows, kWidth});
    ops->embedding(tokens, table, {}, scale, out);
    Values dout = Values::random({kRows, kWidth}, 3), dtable({kVocab, kWidth}, 2);
    std::vector<double> expected(kVocab * kWidth, 2);
    for (int64_t row = 0; row < kRows; ++row) {
      for (int64_t i = 0; i < kWidth; ++i) {
        ASSERT_EQ(out[row * kWidth + i], scale * table[tokens[row] * kWidth + i]);
        expected[static_cast<size_t>(tokens[row] * kWidth + i)] += scale * dout[row * kWidth + i];
      }
    }
    Scratch keys(row_sort_elements(kRows));
    ops->embedding_backward(tokens, dout, {}, scale, dtable, keys);
    expect_near(dtable, expected, 1e-6);
  }
}

TEST(EmbeddingDeathTest, IdOutsideTheTable) {
  const auto ops = cpu_ops(1);
  Ids tokens(3, 100, 1);
  Values table({2, 4}), out({3, 4});
  // A device may report the error at the next wait, and without the values.
  EXPECT_DEATH((ops->embedding(tokens, table, {}, 1, out), ops->synchronize()), "token .* of ");
}

}  // namespace
}  // namespace muster::trainer
