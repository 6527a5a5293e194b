// The emulated tensor cores and copies compared with plain loops.
#include "tests/gpu/emulated/trainer_core/ops/cuda/gemm/tensor_core.cuh"

#include <array>
#include <vector>

#include <gtest/gtest.h>

#include "trainer_core/ops/cuda/gemm/fragments.cuh"

namespace muster::trainer::cuda {
namespace {

// Small integers: sums of their products are exact.
float number(int i) { return static_cast<float>((i * 37 + i / 7 * 11) % 19 - 9); }

// Stores (rows, columns) with rows `stride` apart, or its transpose.
std::vector<Bf16> matrix(int rows, int columns, int stride, bool transposed) {
  std::vector<Bf16> numbers(static_cast<size_t>((transposed ? columns : rows) * stride));
  for (int row = 0; row < rows; ++row)
    for (int column = 0; column < columns; ++column)
      numbers[static_cast<size_t>(transposed ? column * stride + row : row * stride + column)] =
          Bf16::round(number(row * columns + column));
  return numbers;
}

// d (16, 16) = a (16, 16) b (16, 16), by two warps: each has eight columns of d, from the one load
// of b that both make.
template <bool kLeftTransposed, bool kRightByDepth>
void expect_product() {
  constexpr int kStride = 24, kSize = 16;
  const std::vector<Bf16> a = matrix(kSize, kSize, kStride, kLeftTransposed);
  const std::vector<Bf16> b = matrix(kSize, kSize, kStride, !kRightByDepth);
  std::array<std::array<float, kSize>, kSize> d{};
  constexpr int kTile = kSize * kStride;
  emulated::run(dim3(1), dim3(2 * kWarp), 2 * kTile * sizeof(Bf16), [&] {
    Bf16* const left = static_cast<Bf16*>(dynamic_shared());
    Bf16* const right = left + kTile;
    for (int i = static_cast<int>(threadIdx.x) * 8; i < kTile; i += 2 * kWarp * 8) {
      copy_async<16>(left + i, a.data() + i, true);
      copy_async<16>(right + i, b.data() + i, true);
    }
    commit_copies();
    wait_for_copies<0>();
    __syncthreads();
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    uint32_t left_words[4], right_words[2][2];
    load_left<kLeftTransposed>(left, kStride, left_words);
    load_right<kRightByDepth>(right, kStride, right_words);
    float sums[4] = {100, 100, 100, 100};
    mma(sums, left_words, right_words[warp]);
    for (int e = 0; e < 4; ++e)
      d[static_cast<size_t>(fragment_row() + e / 2 * 8)]
       [static_cast<size_t>(8 * warp + fragment_column() + e % 2)] = sums[e];
  });
  for (int row = 0; row < kSize; ++row) {
    for (int column = 0; column < kSize; ++column) {
      float expected = 100;
      for (int k = 0; k < kSize; ++k)
        expected += number(row * kSize + k) * number(k * kSize + column);
      EXPECT_EQ(d[static_cast<size_t>(row)][static_cast<size_t>(column)], expected)
          << row << ' ' << column;
    }
  }
}

TEST(EmulatedTensorCore, MultipliesAllLayouts) {
  expect_product<false, false>();
  expect_product<false, true>();
  expect_product<true, false>();
  expect_product<true, true>();
}

TEST(EmulatedTensorCore, LoadsMatricesFromTheLanesAddresses) {
  constexpr int kStride = 8;
  std::array<std::array<uint32_t, 4>, kWarp> plain{}, transposed{};
  emulated::run(dim3(1), dim3(kWarp), 32 * kStride * sizeof(Bf16), [&] {
    uint16_t* const rows = static_cast<uint16_t*>(dynamic_shared());
    const auto lane = static_cast<size_t>(threadIdx.x);
    for (int column = 0; column < 8; ++column)
      rows[lane * kStride + static_cast<size_t>(column)] =
          static_cast<uint16_t>(100 * lane + static_cast<size_t>(column));
    __syncthreads();
    uint32_t words[4];
    // Passes the rows of the matrices in reverse order: matrix i's rows are those of matrix 3 - i
    // in memory.
    const size_t row = (3 - lane / 8) * 8 + lane % 8;
    load_matrices(rows + row * kStride, words);
    std::copy(words, words + 4, plain[lane].begin());
    load_transposed_matrices(rows + row * kStride, words);
    std::copy(words, words + 4, transposed[lane].begin());
  });
  for (uint32_t lane = 0; lane < kWarp; ++lane) {
    for (uint32_t i = 0; i < 4; ++i) {
      const uint32_t row = (3 - i) * 8, g = lane / 4, t = 2 * (lane % 4);
      EXPECT_EQ(plain[lane][i], (100 * (row + g) + t) | (100 * (row + g) + t + 1) << 16);
      EXPECT_EQ(transposed[lane][i], (100 * (row + t) + g) | (100 * (row + t + 1) + g) << 16);
    }
  }
}

TEST(EmulatedTensorCore, CopiesCompleteWhenTheirGroupIsWaitedFor) {
  const std::array<float, 8> from = {1, 2, 3, 4, 5, 6, 7, 8};
  std::array<float, 12> to{};
  to.fill(-1);
  std::vector<std::array<float, 12>> seen;
  emulated::run(dim3(1), dim3(1), 0, [&] {
    alignas(16) static std::array<float, 12> shared;
    shared = to;
    copy_async<16>(shared.data(), from.data() + 4, true);
    commit_copies();
    copy_async<4>(shared.data() + 9, from.data(), true);
    copy_async<16>(shared.data() + 4, from.data(), false);
    commit_copies();
    seen.push_back(shared);
    wait_for_copies<1>();
    seen.push_back(shared);
    wait_for_copies<0>();
    seen.push_back(shared);
  });
  EXPECT_EQ(seen[0], to);
  EXPECT_EQ(seen[1], (std::array<float, 12>{5, 6, 7, 8, -1, -1, -1, -1, -1, -1, -1, -1}));
  EXPECT_EQ(seen[2], (std::array<float, 12>{5, 6, 7, 8, 0, 0, 0, 0, -1, 1, -1, -1}));
}

TEST(EmulatedTensorCore, RoundsPairs) {
  EXPECT_EQ(pack_bf16(1.0F, -2.0F), 0xc0003f80U);
  EXPECT_EQ(pack_bf16(1.00390625F, 1.01171875F), 0x3f823f80U);  // a tie rounds to even
}

}  // namespace
}  // namespace muster::trainer::cuda
