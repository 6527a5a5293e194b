// RMSNorm, RoPE, SwiGLU and the embedding against fp64 references and their differences.
#include "tests/unit/trainer_core/ops/ops_fixture.h"
#include "trainer_core/ops/workspace.h"

namespace muster::trainer {
namespace {

constexpr double kEps = 1e-5;

std::vector<double> norm_reference(const std::vector<double>& x, const std::vector<double>& gain) {
  std::vector<double> y;
  const size_t width = gain.size();
  for (size_t row = 0; row < x.size() / width; ++row) {
    double square = 0;
    for (size_t i = 0; i < width; ++i) square += x[row * width + i] * x[row * width + i];
    const double rstd = 1 / std::sqrt(square / static_cast<double>(width) + kEps);
    for (size_t i = 0; i < width; ++i) y.push_back(x[row * width + i] * rstd * gain[i]);
  }
  return y;
}

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

TEST_P(LayerOps, RmsNorm) {
  constexpr int64_t kRows = 5;
  Values x = Values::random({kRows, width()}, 1), gain = Values::random({width()}, 2);
  Values y({kRows, width()}), rstd({kRows});
  ops_->rms_norm(x, gain, kEps, y, rstd);
  expect_near(y, norm_reference(as_double(x), as_double(gain)), 1e-6);

  // Adding first gives the bits of the norm of the stored sum, in place, too.
  Values delta = Values::random({kRows, width()}, 3), sum({kRows, width()}), y2({kRows, width()});
  ops_->add_rms_norm(x, delta, gain, kEps, sum, y2, rstd);
  ops_->rms_norm(sum, gain, kEps, y, rstd);
  EXPECT_EQ(y, y2);
  ops_->add_rms_norm(x, delta, gain, kEps, x, y2, rstd);
  EXPECT_EQ(x, sum);
  EXPECT_EQ(y, y2);
}

TEST_P(LayerOps, RmsNormBackward) {
  for (const int64_t rows : {1, 3, 200}) {
    Values x = Values::random({rows, width()}, 1), gain = Values::random({width()}, 2);
    Values dy = Values::random({rows, width()}, 3), y({rows, width()}), rstd({rows});
    ops_->rms_norm(x, gain, kEps, y, rstd);
    Values dx({rows, width()}, 1), dgain({width()}, -9);
    Scratch scratch(cpu_rms_norm_backward_elements(width()));
    ops_->rms_norm_backward(dy, x, gain, rstd, dx, dgain, scratch);
    const std::vector<double> x64 = as_double(x), gain64 = as_double(gain);
    expect_near(dgain,
                derivative(gain64, [&](const auto& g) { return dot(norm_reference(x64, g), dy); }),
                1e-5);
    if (rows > 3) continue;  // the reference is quadratic
    std::vector<double> expected =
        derivative(x64, [&](const auto& v) { return dot(norm_reference(v, gain64), dy); });
    for (double& value : expected) value += 1;  // dx is added to
    expect_near(dx, expected, 2e-5);
  }
}

TEST_P(LayerOps, SwiGlu) {
  constexpr int64_t kRows = 3;
  Values gate_up = Values::random({kRows, 2 * width()}, 1, 4), out({kRows, width()});
  gate_up[0] = -200;  // beyond exp's range in either direction
  gate_up[1] = 200;
  const auto reference = [&](const std::vector<double>& in) {
    std::vector<double> result;
    const auto w = static_cast<size_t>(width());
    for (size_t row = 0; row < kRows; ++row) {
      for (size_t i = 0; i < w; ++i) {
        const double gate = in[row * 2 * w + i];
        result.push_back(gate / (1 + std::exp(-gate)) * in[row * 2 * w + w + i]);
      }
    }
    return result;
  };
  ops_->swiglu(gate_up, out);
  expect_near(out, reference(as_double(gate_up)), 1e-6);

  Values dout = Values::random({kRows, width()}, 2);
  const std::vector<double> expected =
      derivative(as_double(gate_up), [&](const auto& in) { return dot(reference(in), dout); });
  ops_->swiglu_backward(dout, gate_up);
  expect_near(gate_up, expected, 1e-6);
}

INSTANTIATE_TEST_SUITE_P(Widths, LayerOps,
                         testing::Combine(testing::Values(2, 15, 16, 37, 64),
                                          testing::Values(1, 3)));

TEST(Rope, RotatesQueriesAndKeysByPosition) {
  const AttentionShape shape{2, 5, 3, 1, 6};
  const auto ops = cpu_ops(2);
  Values qkv = Values::random({10, shape.qkv_width()}, 1), cos({5, 3}), sin({5, 3});
  for (int64_t i = 0; i < 15; ++i) {
    const double angle =
        static_cast<double>(i / 3) * std::pow(100.0, -2.0 * static_cast<double>(i % 3) / 6);
    cos[i] = static_cast<float>(std::cos(angle));
    sin[i] = static_cast<float>(std::sin(angle));
  }
  const Values before = qkv;
  ops->rope(shape, cos, sin, RopeDirection::kForward, qkv);
  for (int64_t row = 0; row < 10; ++row) {
    for (int64_t column = 0; column < shape.qkv_width(); ++column) {
      const int64_t head = column / 6, i = column % 6;
      const int64_t at = row * shape.qkv_width() + column, position = row % 5;
      double expected = before[at];
      if (head < 4) {
        const float c = cos[position * 3 + i % 3], s = sin[position * 3 + i % 3];
        expected =
            i < 3 ? before[at] * c - before[at + 3] * s : before[at] * c + before[at - 3] * s;
      }
      ASSERT_NEAR(qkv[at], expected, 1e-6) << row << ", " << column;
    }
  }
  // Backward is the transpose of a rotation: its inverse.
  ops->rope(shape, cos, sin, RopeDirection::kBackward, qkv);
  expect_near(qkv, as_double(before), 1e-6);
}

TEST(Embedding, GathersAndScatters) {
  constexpr int64_t kRows = 40, kWidth = 7, kVocab = 5;
  for (const int threads : {1, 2}) {
    const auto ops = cpu_ops(threads);
    Ids tokens(kRows, kVocab, 1);
    Values table = Values::random({kVocab, kWidth}, 2), out({kRows, kWidth});
    ops->embedding(tokens, table, out);
    Values dout = Values::random({kRows, kWidth}, 3), dtable({kVocab, kWidth}, 2);
    std::vector<double> expected(kVocab * kWidth, 2);
    for (int64_t row = 0; row < kRows; ++row) {
      for (int64_t i = 0; i < kWidth; ++i) {
        ASSERT_EQ(out[row * kWidth + i], table[tokens[row] * kWidth + i]);
        expected[static_cast<size_t>(tokens[row] * kWidth + i)] += dout[row * kWidth + i];
      }
    }
    ops->embedding_backward(tokens, dout, dtable);
    expect_near(dtable, expected, 1e-6);
  }
}

TEST(EmbeddingDeathTest, IdOutsideTheTable) {
  const auto ops = cpu_ops(1);
  Ids tokens(3, 100, 1);
  Values table({2, 4}), out({3, 4});
  EXPECT_DEATH(ops->embedding(tokens, table, out), "token .* of 2");
}

}  // namespace
}  // namespace muster::trainer
