// GEMMs, of single matrices and of experts.
#include "tests/gpu/both_backends.h"

namespace muster::trainer {
namespace {

struct MatmulCase {
  int64_t m, n, k;
};
std::vector<MatmulCase> matmul_cases() {
  std::vector<MatmulCase> cases = {{1, 1, 1},
                                   {0, 4, 3},
                                   {4, 3, 0},
                                   {3, 5, 7},
                                   {64, 64, 16},
                                   {65, 130, 33},
                                   {128, 8, 200},
                                   {1, 100, 64},
                                   // Sizes around the tiles of 128 x 128, 64 deep.
                                   {128, 128, 64},
                                   {129, 136, 72},
                                   {200, 24, 130}};
  if (large_shapes()) cases.push_back({1024, 2048, 1024});
  return cases;
}

class Matmul : public testing::TestWithParam<MatmulCase> {};
INSTANTIATE_TEST_SUITE_P(Shapes, Matmul, testing::ValuesIn(matmul_cases()));

TEST_P(Matmul, OfAllTypes) {
  const auto [m, n, k] = GetParam();
  constexpr DType kTypes[] = {DType::kF32, DType::kBf16};
  for (const bool skewed : {false, true}) {
    for (int i = 0; i < 32; ++i) {
      const Transpose ta = (i & 1) != 0 ? Transpose::kYes : Transpose::kNo;
      const Transpose tb = (i & 2) != 0 ? Transpose::kYes : Transpose::kNo;
      const DType type_a = kTypes[i >> 2 & 1], type_b = kTypes[i >> 3 & 1],
                  type_c = kTypes[i >> 4 & 1];
      const bool half = type_a == DType::kBf16 || type_b == DType::kBf16 || type_c == DType::kBf16;
      Both a = Both::random(type_a, ta == Transpose::kYes ? Both::Shape{k, m} : Both::Shape{m, k},
                            1, 1, skewed);
      Both b = Both::random(type_b, tb == Transpose::kYes ? Both::Shape{n, k} : Both::Shape{k, n},
                            2, 1, skewed);
      Both c = Both::random(type_c, {m, n}, 3, 1, skewed),
           sum = Both::random(DType::kF32, {m, n}, 4, 1, skewed);
      on_both([&](Ops& ops, Side side) {
        ops.matmul(a.on(side), ta, b.on(side), tb, c.on(side), Accumulate::kNo);
        ops.matmul(a.on(side), ta, b.on(side), tb, sum.on(side), Accumulate::kYes);
      });
      // Products of two bf16 values are exact in fp32: only sums differ, and the last bit of a
      // rounded result. Tensor cores truncate below the last bit of a sum, each time that they add
      // 16 products to it.
      const double cut = half ? static_cast<double>(k) / 16 * std::ldexp(1.0, -23) : 0;
      expect_same(c, bound_of(type_c, std::max(2e-6, cut)), "c");
      expect_same(sum, std::max(2e-6, cut), "c +=");
    }
  }
}

// Unless matmul_precision is highest, cuBLASLt rounds operands to 10 bits of mantissa, and sums in
// fp32. The error of a sum of k products of values in (-1, 1) is about 2^-11 sqrt(k) / 3,
// and its magnitude up to about sqrt(k).
TEST(Tf32Matmul, RoundsOperandsToTf32) {
  const bool by_library = backends().gpu->name().find("cuBLASLt") != std::string::npos;
  const auto tf32 = cuda_ops({.algorithms_path = {}, .allows_tf32 = true});
  std::vector<MatmulCase> cases = {{64, 48, 96}};
  if (large_shapes()) cases.push_back({256, 128, 1024});
  for (const auto& [m, n, k] : cases) {
    Both a = Both::random(DType::kF32, {m, k}, 1), b = Both::random(DType::kF32, {k, n}, 2);
    Both exact(DType::kF32, {m, n}), rounded(DType::kF32, {m, n});
    const auto multiply = [&](Ops& ops, Side side, Both& c) {
      ops.matmul(a.on(side), Transpose::kNo, b.on(side), Transpose::kNo, c.on(side),
                 Accumulate::kNo);
      ops.synchronize();
    };
    on_both([&](Ops& ops, Side side) { multiply(ops, side, exact); });
    on_both(
        [&](Ops& ops, Side side) { multiply(side == Side::kGpu ? *tf32 : ops, side, rounded); });
    EXPECT_LT(normalised_error(exact), 2e-6);
    EXPECT_LT(normalised_error(rounded), 1e-3);
    if (by_library) {
      EXPECT_GT(normalised_error(rounded), 1e-5) << "is not TF32";
    }
  }
}

using Activate = Epilogue::Activate;

struct EpilogueCase {
  Activate activate;
  Activation activation;
  bool with_bias;  // for backward: the bias's gradient
};
std::vector<EpilogueCase> epilogue_cases() {
  return {{Activate::kNo, Activation::kGelu, true},
          {Activate::kNo, Activation::kGelu, false},
          {Activate::kForward, Activation::kGelu, true},
          {Activate::kForward, Activation::kGelu, false},
          {Activate::kForward, Activation::kRelu, true},
          {Activate::kBackward, Activation::kGelu, true},
          {Activate::kBackward, Activation::kGelu, false},
          {Activate::kBackward, Activation::kSilu, true}};
}

class FusedMatmul : public testing::TestWithParam<std::tuple<MatmulCase, EpilogueCase>> {};
INSTANTIATE_TEST_SUITE_P(Shapes, FusedMatmul,
                         testing::Combine(testing::ValuesIn(matmul_cases()),
                                          testing::ValuesIn(epilogue_cases())));

// GEMMs of activations or gradients with fp32 weights, into activations of either type, as in
// layers.
TEST_P(FusedMatmul, OfBothTypes) {
  const auto& [shape, how] = GetParam();
  const auto [m, n, k] = shape;
  const bool backward = how.activate == Activate::kBackward;
  for (const DType type : {DType::kF32, DType::kBf16}) {
    for (const bool skewed : {false, true}) {
      const Transpose tb = backward ? Transpose::kNo : Transpose::kYes;
      Both a = Both::random(type, {m, k}, 1, 1, skewed);
      Both b =
          Both::random(DType::kF32, backward ? Both::Shape{k, n} : Both::Shape{n, k}, 2, 1, skewed);
      Both bias = Both::random(DType::kF32, {n}, 3, 1, skewed);
      Both c(type, {m, n}, skewed), pre = Both::random(type, {m, n}, 4, 2, skewed);
      Both dbias = Both::random(DType::kF32, {n}, 5, 1, skewed);
      Both added = Both::random(DType::kF32, {n}, 5, 1, skewed);
      Both workspace(DType::kF32, {cpu_bias_backward_elements(n)});
      on_both([&](Ops& ops, Side side) {
        Epilogue epilogue{.activate = how.activate, .activation = how.activation};
        if (how.activate != Activate::kNo) epilogue.pre = pre.on(side);
        if (how.with_bias && !backward) epilogue.bias = bias.on(side);
        if (how.with_bias && backward) epilogue.dbias = dbias.on(side);
        epilogue.workspace = workspace.workspace(side);
        ops.fused_matmul(a.on(side), Transpose::kNo, b.on(side), tb, c.on(side), epilogue);
        if (!backward || !how.with_bias) return;
        epilogue.dbias = added.on(side);
        epilogue.accumulate = Accumulate::kYes;
        ops.fused_matmul(a.on(side), Transpose::kNo, b.on(side), tb, c.on(side), epilogue);
      });
      // A bf16 result is rounded up to three times by one backend, and once by the other.
      const double bound = bound_of(type, 1e-5) * (type == DType::kBf16 ? 3 : 1);
      expect_same(c, bound, "c");
      expect_same(pre, bound, "what is activated");
      if (!backward || !how.with_bias) continue;
      expect_same(dbias, bound, "dbias");
      expect_same(added, bound, "dbias +=");
    }
  }
}

struct ExpertsCase {
  int64_t rows, in, out;
  // Experts with many rows, with none, and rows after the last expert's.
  std::vector<int32_t> offsets;
  bool skewed;
};
class Experts : public testing::TestWithParam<std::tuple<ExpertsCase, DType>> {};
INSTANTIATE_TEST_SUITE_P(
    Shapes, Experts,
    testing::Combine(testing::Values(ExpertsCase{150, 40, 70, {0, 3, 3, 100, 101, 140}, false},
                                     ExpertsCase{300, 136, 72, {0, 128, 257, 257, 300}, false},
                                     ExpertsCase{97, 33, 130, {0, 0, 65, 97}, true},
                                     // More tiles of rows than a band has.
                                     ExpertsCase{2100, 3, 130, {0, 2090, 2095}, false}),
                     testing::Values(DType::kF32, DType::kBf16)));

TEST_P(Experts, Matmuls) {
  const auto& [c, dtype] = GetParam();
  const auto experts = static_cast<int64_t>(c.offsets.size()) - 1;
  Both offsets(DType::kI32, {experts + 1});
  offsets.set_ids(c.offsets);
  Both x = Both::random(dtype, {c.rows, c.in}, 1, 1, c.skewed);
  Both dy = Both::random(dtype, {c.rows, c.out}, 2, 1, c.skewed);
  Both w = Both::random(DType::kF32, {experts, c.out, c.in}, 3, 1, c.skewed);
  Both y = Both::filled(dtype, {c.rows, c.out}, 5), dx = Both::filled(dtype, {c.rows, c.in}, 6);
  Both dw = Both::random(DType::kF32, {experts, c.out, c.in}, 4);
  Both more = Both::random(DType::kF32, {experts, c.out, c.in}, 5);
  on_both([&](Ops& ops, Side side) {
    ops.expert_matmul(offsets.on(side), x.on(side), w.on(side), y.on(side));
    ops.expert_matmul_dx(offsets.on(side), dy.on(side), w.on(side), dx.on(side));
    ops.expert_matmul_dw(offsets.on(side), dy.on(side), x.on(side), dw.on(side), Accumulate::kNo);
    ops.expert_matmul_dw(offsets.on(side), dy.on(side), x.on(side), more.on(side),
                         Accumulate::kYes);
  });
  expect_same(y, bound_of(dtype), "y");
  expect_same(dx, bound_of(dtype), "dx");
  // In bf16, tensor cores truncate the sum at each step of 16 rows.
  const double cut = dtype == DType::kBf16 ? static_cast<double>(c.rows) / 16 * 0x1p-23 : 0;
  expect_same(dw, std::max(2e-6, cut), "dw");
  expect_same(more, std::max(2e-6, cut), "dw +=");
}

// Rows of other experts, and those after the last, do not contribute to an expert's sums, whatever
// they hold.
TEST(ExpertGradients, IgnoreOtherRows) {
  constexpr int64_t kRows = 60, kWidth = 24;
  Both offsets(DType::kI32, {3});
  offsets.set_ids({0, 21, 40});
  Both x = Both::random(DType::kBf16, {kRows, kWidth}, 1),
       dy = Both::random(DType::kBf16, {kRows, kWidth}, 2);
  std::vector<float> spoiled;
  for (const double number : x.values(Side::kCpu))
    spoiled.push_back(spoiled.size() < 40 * kWidth ? static_cast<float>(number) : std::nanf(""));
  x.set(spoiled);
  Both dw(DType::kF32, {2, kWidth, kWidth});
  on_both([&](Ops& ops, Side side) {
    ops.expert_matmul_dw(offsets.on(side), dy.on(side), x.on(side), dw.on(side), Accumulate::kNo);
  });
  for (const double number : dw.values(Side::kGpu)) ASSERT_TRUE(std::isfinite(number));
  expect_same(dw, 2e-6, "dw");
}

}  // namespace
}  // namespace muster::trainer
