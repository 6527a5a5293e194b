// The built-in GEMM on every instruction set of this machine, and both libraries, against a
// reference in fp64.
#include "trainer_core/ops/cpu/gemm.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <ostream>
#include <vector>

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include "common/random/philox.h"
#include "tests/unit/sanitized.h"
#include "trainer_core/ops/cpu/gemm_kernels.h"
#include "trainer_core/ops/cpu/matmul.h"

namespace muster::trainer::cpu {

std::ostream& operator<<(std::ostream& out, const MatmulShape& s) {
  return out << s.m << 'x' << s.n << 'x' << s.k << ' ' << (s.transpose_a ? 'T' : 'N')
             << (s.transpose_b ? 'T' : 'N') << (s.accumulate ? " added" : "");
}

namespace {

constexpr int64_t kGuard = 64;  // elements before and after a matrix that must not be accessed
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

// A matrix of fp32 or bf16 between guards: of NaN, which would show in any sum that reads them, or
// of a value that must stay.
class Guarded {
 public:
  Guarded(DType dtype, int64_t elements, uint64_t stream, float guard)
      : dtype_(dtype), elements_(elements), memory_(static_cast<size_t>(elements + 2 * kGuard)) {
    const Philox philox{.key = 7, .stream = stream};
    for (int64_t i = -kGuard; i < elements + kGuard; ++i) {
      const bool inside = i >= 0 && i < elements;
      set(i, inside ? 2 * uniform_from_bits(philox(static_cast<uint64_t>(i))[0]) - 1 : guard);
    }
  }
  void* data() { return first() + kGuard * static_cast<int64_t>(dtype_bytes(dtype_)); }
  const void* data() const { return const_cast<Guarded*>(this)->data(); }
  MatrixIn in() const { return {data(), dtype_}; }
  MatrixOut out() { return {data(), dtype_}; }

  float operator[](int64_t i) const {
    if (dtype_ == DType::kBf16) return static_cast<const Bf16*>(data())[i].value();
    return static_cast<const float*>(data())[i];
  }
  // Returns the element as a bf16 GEMM reads it.
  float rounded(int64_t i) const { return Bf16::round((*this)[i]).value(); }

  bool guards_hold() const {
    const float guard = dtype_ == DType::kBf16 ? Bf16::round(kUntouched).value() : kUntouched;
    for (int64_t i = 0; i < kGuard; ++i) {
      if ((*this)[-1 - i] != guard || (*this)[elements_ + i] != guard) return false;
    }
    return true;
  }
  friend bool operator==(const Guarded& a, const Guarded& b) { return a.memory_ == b.memory_; }

 private:
  char* first() { return reinterpret_cast<char*>(memory_.data()); }
  void set(int64_t i, float value) {
    if (dtype_ == DType::kBf16) {
      static_cast<Bf16*>(data())[i] = Bf16::round(value);
    } else {
      static_cast<float*>(data())[i] = value;
    }
  }

  DType dtype_;
  int64_t elements_;
  std::vector<float> memory_;  // bf16 uses the first half
};

struct Types {
  DType a = DType::kF32, b = DType::kF32, c = DType::kF32;

  bool bf16() const { return a == DType::kBf16 || b == DType::kBf16 || c == DType::kBf16; }
};

struct Problem {
  explicit Problem(const MatmulShape& s, const Types& of = {})
      : shape(s),
        types(of),
        a(of.a, s.m * s.k, 1, std::numeric_limits<float>::quiet_NaN()),
        b(of.b, s.k * s.n, 2, std::numeric_limits<float>::quiet_NaN()),
        c(of.c, s.m * s.n, 3, kUntouched) {}

  std::vector<double> reference() const {
    const auto [m, n, k, transpose_a, transpose_b, accumulate] = shape;
    const bool round = types.bf16();
    std::vector<double> sums;
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        double sum = accumulate ? c[i * n + j] : 0;
        for (int64_t p = 0; p < k; ++p) {
          const int64_t left = transpose_a ? p * m + i : i * k + p;
          const int64_t right = transpose_b ? j * k + p : p * n + j;
          sum += round ? double{a.rounded(left)} * b.rounded(right) : double{a[left]} * b[right];
        }
        sums.push_back(sum);
      }
    }
    return sums;
  }

  MatmulShape shape;
  Types types;
  Guarded a, b, c;
};

// The remaining error is that of fp32 sums, and of rounding the result to bf16 (half a unit in 8
// bits).
void expect_sums(const Problem& problem, const Guarded& c, const std::vector<double>& sums) {
  const double absolute = 1e-6 * static_cast<double>(problem.shape.k + 1);
  const double relative = problem.types.c == DType::kBf16 ? 1.0 / 256 : 0;
  for (size_t i = 0; i < sums.size(); ++i) {
    ASSERT_NEAR(c[static_cast<int64_t>(i)], sums[i], absolute + relative * std::abs(sums[i]))
        << problem.shape << ", element " << i;
  }
  ASSERT_TRUE(c.guards_hold()) << problem.shape << ": written outside c";
}

// Covers tails of every tile, and sometimes more than a block of the packed GEMM in one dimension.
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
      Gemm(1).run(problem.shape, problem.a.in(), problem.b.in(), c.out());
      expect_sums(problem, c, sums);
    });
    if (HasFatalFailure()) return;
  }
}

Types random_bf16_types(Draws& draws) {
  const auto type = [&] { return draws.coin() ? DType::kBf16 : DType::kF32; };
  Types types;
  while (!types.bf16()) types = {type(), type(), type()};
  return types;
}

TEST(Gemm, SumsRandomBf16ShapesOnEveryTarget) {
  constexpr int kShapes = 160;
  Draws draws(13);
  for (int i = 0; i < kShapes; ++i) {
    const Types types = random_bf16_types(draws);
    MatmulShape shape = random_shape(draws);
    if (types.c == DType::kBf16) shape.accumulate = false;
    const Problem problem(shape, types);
    const std::vector<double> sums = problem.reference();
    for_each_target([&] {
      Guarded c = problem.c;
      Gemm(1).run(problem.shape, problem.a.in(), problem.b.in(), c.out());
      expect_sums(problem, c, sums);
    });
    if (HasFatalFailure()) return;
  }
}

// Sums that wait for the next block of the depth lie beside a bf16 result, for 960 rows of 1024
// columns at a time; an fp32 result holds the same sums itself.
TEST(Gemm, ABf16ResultIsTheFp32ResultRounded) {
  const MatmulShape shape{1000, 1025, 1030, false, true, false};
  const Problem problem(shape, {DType::kBf16, DType::kF32, DType::kBf16});
  Guarded rounded = problem.c, exact(DType::kF32, shape.m * shape.n, 3, kUntouched);
  Gemm gemm(2);
  gemm.run(shape, problem.a.in(), problem.b.in(), rounded.out());
  gemm.run(shape, problem.a.in(), problem.b.in(), exact.out());
  for (int64_t i = 0; i < shape.m * shape.n; ++i) ASSERT_EQ(rounded[i], exact.rounded(i)) << i;
  EXPECT_TRUE(rounded.guards_hold());
}

const std::vector<int> kThreadCounts = kSanitized ? std::vector<int>{3} : std::vector<int>{2, 3, 4};

TEST(Gemm, GivesTheSameBitsWithAnyNumberOfThreads) {
  // Large enough for all threads to work, with few and many rows and columns, and more than one
  // block of each.
  const MatmulShape shapes[] = {
      {350, 90, 1100, false, true, false}, {50, 1300, 200, true, false, true},
      {7, 2000, 301, false, true, true},   {3, 1999, 517, true, false, false},
      {1, 4000, 700, false, false, false}, {301, 303, 305, true, true, false},
  };
  const Types all_types[] = {
      {}, {DType::kBf16, DType::kF32, DType::kF32}, {DType::kF32, DType::kBf16, DType::kBf16}};
  for (const MatmulShape& shape : shapes) {
    for (const Types& types : all_types) {
      if (types.c == DType::kBf16 && shape.accumulate) continue;
      const Problem problem(shape, types);
      for_each_target([&] {
        Guarded serial = problem.c;
        Gemm(1).run(shape, problem.a.in(), problem.b.in(), serial.out());
        for (const int threads : kThreadCounts) {
          Guarded c = problem.c;
          Gemm(threads).run(shape, problem.a.in(), problem.b.in(), c.out());
          EXPECT_TRUE(c == serial) << shape << " with " << threads << " threads";
        }
      });
    }
  }
}

// Values that bf16 represents exactly are unchanged, however an operand is packed; others round to
// nearest even; NaN and infinity stay.
TEST(Gemm, RoundsOperandsToTheNearestEvenBf16) {
  constexpr int64_t kSize = 40;
  const float inf = std::numeric_limits<float>::infinity();
  const float values[] = {1.0F,       1.00390625F, 1.01171875F,    -1.00390625F,
                          1.0039063F, 3.4e38F,     3.3961776e38F,  -inf,
                          inf,        1e-30F,      std::nanf("7"), 0.0F};
  for (const bool transposed : {false, true}) {
    std::vector<float> a(kSize * kSize), identity(kSize * kSize), c(kSize * kSize);
    // A row of a has one value, and meets one column of the identity; 0 times infinity would be
    // NaN.
    for (int64_t i = 0; i < kSize; ++i) {
      a[static_cast<size_t>(i * kSize + i)] = values[static_cast<size_t>(i) % std::size(values)];
      identity[static_cast<size_t>(i * kSize + i)] = 1;
    }
    std::vector<Bf16> ones(identity.size());
    for (size_t i = 0; i < ones.size(); ++i) ones[i] = Bf16::round(identity[i]);
    for_each_target([&] {
      Gemm(1).run({kSize, kSize, kSize, transposed, false, false}, a.data(), ones.data(), c.data());
      for (int64_t i = 0; i < kSize; ++i) {
        const auto at = static_cast<size_t>(i * kSize + i);
        const float expected = Bf16::round(a[at]).value();
        if (std::isnan(expected)) {
          EXPECT_TRUE(std::isnan(c[at])) << i;
        } else {
          EXPECT_EQ(c[at], expected) << i;
        }
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

// Each library on each vendor's code path: what passes on one processor passes on the other.
class Libraries : public testing::TestWithParam<std::tuple<MatmulLibrary, Vendor>> {
 protected:
  Matmul matmul(int threads) {
    return Matmul(threads, std::get<MatmulLibrary>(GetParam()), std::get<Vendor>(GetParam()));
  }
};

TEST_P(Libraries, SumRandomShapes) {
  constexpr int kShapes = 60;
  for_each_target([&] {
    Draws draws(12);
    Matmul product = matmul(2);
    for (int i = 0; i < kShapes; ++i) {
      const Problem problem(random_shape(draws));
      Guarded c = problem.c;
      product.run(problem.shape, problem.a.in(), problem.b.in(), c.out());
      expect_sums(problem, c, problem.reference());
      if (HasFatalFailure()) return;
    }
  });
}

TEST_P(Libraries, SumEmptyShapes) {
  for_each_target([&] {
    Matmul product = matmul(2);
    for (int bits = 0; bits < 64; ++bits) {
      const auto bit = [&](int i) { return (bits >> i & 1) != 0; };
      const MatmulShape shape{bit(0) ? 0 : 3, bit(1) ? 0 : 5, bit(2) ? 0 : 7,
                              bit(3),         bit(4),         bit(5)};
      const Problem problem(shape);
      Guarded c = problem.c;
      product.run(problem.shape, problem.a.in(), problem.b.in(), c.out());
      expect_sums(problem, c, problem.reference());
      if (HasFatalFailure()) return;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(All, Libraries,
                         testing::Combine(testing::Values(MatmulLibrary::kFastest,
                                                          MatmulLibrary::kOwn,
                                                          MatmulLibrary::kOneDnn),
                                          testing::Values(Vendor::kIntel, Vendor::kOther)));

}  // namespace
}  // namespace muster::trainer::cpu
