// Common parts of the bf16 attention kernels: tiles of a head's rows in shared memory, and GEMMs on
// tensor cores of a warp's rows with such tiles.
//
// A block has four warps and a tile of 64 rows, 16 per warp. The rows are queries, or keys in the
// kernel for the gradient of keys. The block iterates over tiles of the other side. Scores and
// their gradients stay in the warps' registers, because the result of one GEMM has the register
// layout of the next one's left operand. Heads are padded with zeros to kHead columns.
#pragma once

#include <cstdint>

#include "trainer_core/ops/cuda/attention/attention_positions.cuh"
#include "trainer_core/ops/cuda/gemm/fragments.cuh"

namespace muster::trainer::cuda {

constexpr int kBlockWarps = 4, kBlockThreads = kBlockWarps * kWarp;
constexpr int kBlockRows = kBlockWarps * kMmaRows;
static_assert(kBlockRows == kBf16QueryRows);
// exp(x) = exp2(kLog2E x). On the device, exp2 is a single instruction, but exp is not.
constexpr float kLog2E = 1.4426950408889634F;

// The rows of one head in a sequence.
struct HeadRows {
  const Bf16* data;
  int64_t width;  // number of elements from one row to the next
  int64_t count;
  int head_dim;
  // True if each row, and every eighth element of it, is aligned to 16 bytes.
  bool vectors;

  __device__ static HeadRows of(const void* data, int64_t offset, int64_t width, int64_t count,
                                int64_t head_dim) {
    const Bf16* const begin = static_cast<const Bf16*>(data) + offset;
    const uint64_t bytes = reinterpret_cast<uint64_t>(begin) | width * sizeof(Bf16);
    return {begin, width, count, static_cast<int>(head_dim),
            bytes % sizeof(uint4) == 0 && head_dim % 8 == 0};
  }
};
// The functions below return the rows of one sequence and head: of queries; of outputs or their
// gradients; and of keys or values.
__device__ inline HeadRows query_rows(const AttentionLayer& layer, int64_t sequence, int64_t head) {
  const int64_t count = layer.queries.count, h = layer.head_dim;
  return HeadRows::of(layer.qkv, sequence * count * layer.qkv_width + head * h, layer.qkv_width,
                      count, h);
}
__device__ inline HeadRows out_rows(const AttentionLayer& layer, const void* out, int64_t sequence,
                                    int64_t head) {
  const int64_t count = layer.queries.count, h = layer.head_dim;
  return HeadRows::of(out, (sequence * count * layer.heads + head) * h, layer.heads * h, count, h);
}
__device__ inline HeadRows key_rows(const AttentionLayer& layer, int64_t sequence, int64_t kv_head,
                                    bool values) {
  const KeyRows& keys = layer.keys;
  const int64_t h = layer.head_dim, column = kv_head + (values ? layer.kv_heads : 0);
  return HeadRows::of(keys.data, sequence * keys.runs.count * keys.width + keys.column + column * h,
                      keys.width, keys.runs.count, h);
}

// A tile in shared memory, with rows of kHead elements.
template <int kHead>
struct HeadTile {
  static constexpr int kStride = kHead + kStridePadding;
  static constexpr size_t bytes(int rows) { return sizeof(Bf16) * kStride * rows; }

  // Starts to copy kRows rows from `first` on. Rows for which `wanted(row)` is false, and elements
  // beyond the last row and column, become zeros.
  template <int kRows, class Wanted>
  __device__ static void load(const HeadRows& from, int64_t first, const Wanted& wanted, Bf16* to) {
    // Each thread copies one run of columns in every kStep-th row.
    constexpr int kRun = 8, kRuns = kHead / kRun, kStep = kBlockThreads / kRuns;
    static_assert(kBlockThreads % kRuns == 0 && kRows % kStep == 0);
    const int thread = static_cast<int>(threadIdx.x), column = thread % kRuns * kRun;
    int64_t row = first + thread / kRuns;
    const int64_t end = first + kRows;
    const Bf16* run = from.data + row * from.width + column;
    Bf16* target = to + thread / kRuns * kStride + column;
    const auto step = [&] { row += kStep, run += kStep * from.width, target += kStep * kStride; };
    const auto elements_left = [&] {
      return row < from.count && wanted(row) ? from.head_dim - column : 0;
    };
    if (from.vectors) {
#pragma unroll 2
      for (; row < end; step()) {
        const bool here = elements_left() > 0;
        copy_async<16>(target, here ? run : from.data, here);
      }
      return;
    }
#pragma unroll 1
    for (; row < end; step()) {
      const int left = elements_left();
      const auto pair = [&](int at) {
        const unsigned low = at < left ? run[at].bits : 0U;
        const unsigned high = at + 1 < left ? run[at + 1].bits : 0U;
        return low | high << 16;
      };
      *reinterpret_cast<uint4*>(target) = {pair(0), pair(2), pair(4), pair(6)};
    }
  }
  // Does the same, with zeros in place of the values of keys to which no query of the tile attends:
  // such values may be NaN, and a probability of 0 times NaN is NaN.
  template <int kRows>
  __device__ static void load_seen(const HeadRows& from, int64_t first, const Runs& runs,
                                   const SeenKeys& seen, Bf16* to) {
    const bool all = seen.has_all(bounds_of(runs, first, kRows));
    load<kRows>(
        from, first, [&](int64_t row) { return all || seen.has(runs.at(row)); }, to);
  }
  template <int kRows>
  __device__ static void load_all(const HeadRows& from, int64_t first, Bf16* to) {
    load<kRows>(
        from, first, [](int64_t) { return true; }, to);
  }

  // sums (16, 8 kWide) += rows (16, kHead) otherᵀ, where `other` is (8 kWide, kHead).
  template <int kWide>
  __device__ static void multiply_transposed(const Bf16* rows, const Bf16* other,
                                             float (&sums)[kWide][4]) {
#pragma unroll
    for (int k = 0; k < kHead; k += kMmaDepth) {
      uint32_t a[4];
      load_left<false>(rows + k, kStride, a);
#pragma unroll
      for (int j = 0; j < kWide; j += 2) {
        uint32_t b[2][2];
        load_right<false>(other + j * kMmaColumns * kStride + k, kStride, b);
        mma(sums[j], a, b[0]);
        mma(sums[j + 1], a, b[1]);
      }
    }
  }
  // sums (16, 8 kWide) += weights (16, 8 kDeep) other, where `other` is (8 kDeep, 8 kWide). Rounds
  // the weights to bf16.
  template <int kDeep, int kWide>
  __device__ static void add_weighted(const float (&weights)[kDeep][4], const Bf16* other,
                                      float (&sums)[kWide][4]) {
#pragma unroll
    for (int k = 0; k < kDeep; k += 2) {
      uint32_t a[4];
      left_of(weights[k], weights[k + 1], a);
#pragma unroll
      for (int j = 0; j < kWide; j += 2) {
        uint32_t b[2][2];
        load_right<true>(other + k * kMmaColumns * kStride + j * kMmaColumns, kStride, b);
        mma(sums[j], a, b[0]);
        mma(sums[j + 1], a, b[1]);
      }
    }
  }
};

// Returns the first row of the first tile of kRows keys, from row `first` on, to which any query
// may attend: its positions meet `seen`. If there is none, returns a row at or after the last key's
// end.
template <int kRows>
__device__ inline int64_t next_keys(const Runs& keys, const PositionBounds& seen, int64_t first) {
  while (first < keys.count && !meet(seen, bounds_of(keys, first, kRows))) first += kRows;
  return first;
}

// Calls body with a value of the type that a kernel writes, fp32 or bf16, and with the number of
// columns that heads of this size are padded to.
template <class Body>
void with_kernel(bool fp32, int64_t head_dim, const Body& body) {
  with_type(fp32 ? DType::kF32 : DType::kBf16, [&](auto number) {
    if (head_dim <= 64) return body(number, std::integral_constant<int, 64>());
    if (head_dim <= 128) return body(number, std::integral_constant<int, 128>());
    body(number, std::integral_constant<int, static_cast<int>(kHeadDimMax)>());
  });
}
// Returns the grid (tiles of queries, H, B).
inline dim3 query_blocks(const AttentionLayer& layer) {
  return dim3(static_cast<unsigned>(ceil_div(layer.queries.count, kBlockRows)),
              static_cast<unsigned>(layer.heads), static_cast<unsigned>(layer.batch));
}

}  // namespace muster::trainer::cuda
