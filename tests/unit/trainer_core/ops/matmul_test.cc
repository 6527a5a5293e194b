#include <ostream>
#include <tuple>

#include "tests/unit/trainer_core/ops/ops_fixture.h"
#include "trainer_core/ops/gemm_peak.h"

namespace muster::trainer {
namespace {

struct Shape {
  int64_t m, n, k;

  friend std::ostream& operator<<(std::ostream& out, const Shape& s) {
    return out << s.m << "x" << s.n << "x" << s.k;
  }
};

using MatmulCase = std::tuple<Shape, bool, bool, bool, int>;

class Matmul : public testing::TestWithParam<MatmulCase> {};

TEST_P(Matmul, IsTheSumOfProducts) {
  const auto [shape, transpose_a, transpose_b, accumulate, threads] = GetParam();
  const auto [m, n, k] = shape;
  Values a = transpose_a ? Values::random({k, m}, 1) : Values::random({m, k}, 1);
  Values b = transpose_b ? Values::random({n, k}, 2) : Values::random({k, n}, 2);
  Values c = Values::random({m, n}, 3);
  std::vector<double> expected(static_cast<size_t>(m * n));
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      double sum = accumulate ? c[i * n + j] : 0;
      for (int64_t p = 0; p < k; ++p) {
        sum += static_cast<double>(transpose_a ? a[p * m + i] : a[i * k + p]) *
               (transpose_b ? b[j * k + p] : b[p * n + j]);
      }
      expected[static_cast<size_t>(i * n + j)] = sum;
    }
  }
  const auto ops = cpu_ops(threads);
  const Values before = c;
  for (int repeat = 0; repeat < 2; ++repeat) {
    c = before;
    ops->matmul(a, transpose_a ? Transpose::kYes : Transpose::kNo, b,
                transpose_b ? Transpose::kYes : Transpose::kNo, c,
                accumulate ? Accumulate::kYes : Accumulate::kNo);
    expect_near(c, expected, 1e-5);
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, Matmul,
                         testing::Combine(testing::Values(Shape{1, 1, 1}, Shape{5, 7, 3},
                                                          Shape{33, 17, 65}, Shape{1, 40, 9},
                                                          Shape{64, 1, 12}, Shape{20, 24, 1500}),
                                          testing::Bool(), testing::Bool(), testing::Bool(),
                                          testing::Values(1, 2)));

TEST(MatmulDeathTest, ShapesThatDisagree) {
  Values a({2, 3}), b({4, 5}), c({2, 5});
  const auto ops = cpu_ops(1);
  EXPECT_DEATH(ops->matmul(a, Transpose::kNo, b, Transpose::kNo, c, Accumulate::kNo),
               "matmul of \\(2, 3\\)");
}

TEST(GemmPeak, IsPlausible) {
  const auto ops = cpu_ops(1);
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    const double peak = measure_gemm_peak_tflops(*ops, dtype);
    EXPECT_GT(peak, 1e-8);  // GEMMs of 16 x 16 x 16 take milliseconds on the emulated device
    EXPECT_LT(peak, 100);
  }
}

TEST(GemmPeak, CountsTheGemmsThatTheWatchAccepts) {
  const auto ops = cpu_ops(1);
  int begun = 0, judged = 0;
  const auto measure = [&](auto accepts) {
    const GemmWatch watch{.begin = [&] { ++begun; }, .counts = [&] { return accepts(++judged); }};
    return measure_gemm_peak_tflops(*ops, DType::kF32, &watch);
  };
  EXPECT_EQ(measure([](int) { return false; }), 0);
  EXPECT_GT(judged, 0);
  EXPECT_EQ(begun, judged);
  judged = 0;
  EXPECT_GT(measure([](int i) { return i == 1; }), 0);
}

}  // namespace
}  // namespace muster::trainer
