// Our own product on every instruction set that this machine has, and both libraries beside a reference in fp64.
#include "trainer_core/ops/cpu/gemm.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <ostream>
#include <vector>

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include "common/philox.h"
#include "trainer_core/ops/cpu/gemm_kernels.h"
#include "trainer_core/ops/cpu/matmul.h"

namespace muster::trainer::cpu {

std::ostream& operator<<(std::ostream& out, const MatmulShape& s) {
  return out << s.m << 'x' << s.n << 'x' << s.k << ' ' << (s.transpose_a ? 'T' : 'N')
             << (s.transpose_b ? 'T' : 'N') << (s.accumulate ? " added" : "");
}

namespace {

constexpr int64_t kGuard = 64;  // elements before and behind a matrix that nobody may touch
constexpr float kUntouched = -12345.0F;

// Draws from [0, limit).
class Draws {
 public:
  explicit Draws(uint64_t seed) : philox_{.key = seed, .stream = 1} {}
  int64_t below(int64_t limit) { return philox_(index_++)[0] % static_cast<uint32_t>(limit); }
  bool coin() { return below(2) == 1; }

 private:
  Philox philox_;
  uint64_t index_ = 0;
};

// A matrix between guards: of NaN, which would show in any sum that reads them, or of a value that must stay.
class Guarded {
 public:
  Guarded(int64_t elements, uint64_t stream, float guard)
      : elements_(elements), memory_(static_cast<size_t>(elements + 2 * kGuard), guard) {
    const Philox philox{.key = 7, .stream = stream};
    for (int64_t i = 0; i < elements; ++i) {
      data()[i] = 2 * uniform_from_bits(philox(static_cast<uint64_t>(i))[0]) - 1;
    }
  }
  float* data() { return memory_.data() + kGuard; }
  const float* data() const { return memory_.data() + kGuard; }

  bool guards_hold() const {
    for (int64_t i = 0; i < kGuard; ++i) {
      if (data()[-1 - i] != kUntouched || data()[elements_ + i] != kUntouched) return false;
    }
    return true;
  }
  friend bool operator==(const Guarded& a, const Guarded& b) { return a.memory_ == b.memory_; }

 private:
  int64_t elements_;
  std::vector<float> memory_;
};

struct Problem {
  explicit Problem(const MatmulShape& s)
      : shape(s),
        a(s.m * s.k, 1, std::numeric_limits<float>::quiet_NaN()),
        b(s.k * s.n, 2, std::numeric_limits<float>::quiet_NaN()),
        c(s.m * s.n, 3, kUntouched) {}

  std::vector<double> reference() const {
    const auto [m, n, k, transpose_a, transpose_b, accumulate] = shape;
    std::vector<double> sums;
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        double sum = accumulate ? c.data()[i * n + j] : 0;
        for (int64_t p = 0; p < k; ++p) {
          sum += static_cast<double>(a.data()[transpose_a ? p * m + i : i * k + p]) *
                 b.data()[transpose_b ? j * k + p : p * n + j];
        }
        sums.push_back(sum);
      }
    }
    return sums;
  }

  MatmulShape shape;
  Guarded a, b, c;
};

void expect_sums(const Problem& problem, const Guarded& c, const std::vector<double>& sums) {
  const double tolerance = 1e-6 * static_cast<double>(problem.shape.k + 1);
  for (size_t i = 0; i < sums.size(); ++i) {
    ASSERT_NEAR(c.data()[i], sums[i], tolerance) << problem.shape << ", element " << i;
  }
  ASSERT_TRUE(c.guards_hold()) << problem.shape << ": written outside c";
}

// Tails of every tile, and in one dimension now and then more than a block of the packed product.
MatmulShape random_shape(Draws& draws) {
  constexpr int64_t kSmall[] = {3, 20, 70};
  constexpr int64_t kAroundBlocks[] = {95, 97, 200, 511, 513, 1023, 1030};
  int64_t size[3];
  for (int64_t& dimension : size) dimension = 1 + draws.below(kSmall[draws.below(3)]);
  if (draws.coin()) size[draws.below(3)] = kAroundBlocks[draws.below(std::size(kAroundBlocks))];
  return {size[0], size[1], size[2], draws.coin(), draws.coin(), draws.coin()};
}

// Calls body for each instruction set, with kernels dispatched to it.
template <class Body>
void for_each_target(const Body& body) {
  for (int64_t targets = hwy::SupportedTargets() & HWY_TARGETS; targets != 0;
       targets &= targets - 1) {
    const int64_t target = targets & -targets;
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    ASSERT_EQ(gemm_target(), target);
    body();
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

TEST(Gemm, SumsRandomShapesOnEveryTarget) {
  constexpr int kShapes = 120;
  Draws draws(11);
  for (int i = 0; i < kShapes; ++i) {
    const Problem problem(random_shape(draws));
    const std::vector<double> sums = problem.reference();
    for_each_target([&] {
      Guarded c = problem.c;
      Gemm(1).run(problem.shape, problem.a.data(), problem.b.data(), c.data());
      expect_sums(problem, c, sums);
    });
    if (HasFatalFailure()) return;
  }
}

TEST(Gemm, GivesTheSameBitsWithAnyNumberOfThreads) {
  // Large enough for all threads to work, with few and many rows and columns, and more than one block of each.
  const MatmulShape shapes[] = {
      {350, 90, 1100, false, true, false}, {50, 1300, 200, true, false, true},
      {7, 2000, 301, false, true, true},   {3, 1999, 517, true, false, false},
      {1, 4000, 700, false, false, false}, {301, 303, 305, true, true, false},
  };
  for (const MatmulShape& shape : shapes) {
    const Problem problem(shape);
    for_each_target([&] {
      Guarded serial = problem.c;
      Gemm(1).run(shape, problem.a.data(), problem.b.data(), serial.data());
      for (const int threads : {2, 3, 4}) {
        Guarded c = problem.c;
        Gemm(threads).run(shape, problem.a.data(), problem.b.data(), c.data());
        EXPECT_TRUE(c == serial) << shape << " with " << threads << " threads";
      }
    });
  }
}

TEST(Gemm, AnEmptySumIsZero) {
  const float none = 0;
  float c[2] = {3, 4};
  Gemm gemm(2);
  gemm.run({1, 2, 0, false, false, true}, &none, &none, c);
  EXPECT_EQ(c[1], 4);
  gemm.run({1, 2, 0, false, false, false}, &none, &none, c);
  EXPECT_EQ(c[0], 0);
  gemm.run({0, 2, 3, false, false, false}, &none, &none, c);
  gemm.run({2, 0, 3, false, false, false}, &none, &none, c);
}

class Libraries : public testing::TestWithParam<MatmulLibrary> {};

TEST_P(Libraries, SumRandomShapes) {
  constexpr int kShapes = 60;
  Draws draws(12);
  Matmul matmul(2, GetParam());
  for (int i = 0; i < kShapes; ++i) {
    const Problem problem(random_shape(draws));
    Guarded c = problem.c;
    matmul.run(problem.shape, problem.a.data(), problem.b.data(), c.data());
    expect_sums(problem, c, problem.reference());
    if (HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Libraries,
                         testing::Values(MatmulLibrary::kFastest, MatmulLibrary::kOwn,
                                         MatmulLibrary::kOneDnn));

}  // namespace
}  // namespace muster::trainer::cpu
