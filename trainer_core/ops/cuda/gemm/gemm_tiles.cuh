// One block's part of a GEMM: a tile of c, summed over a range of the operands' depth. ExactTile
// computes in fp32 by multiply-adds; TensorTile computes in bf16 on tensor cores.
#pragma once

#include <cstdint>

#include "trainer_core/ops/cuda/gemm/fragments.cuh"
#include "trainer_core/ops/cuda/gemm/gemm.h"

namespace muster::trainer::cuda {

// The part of the operands that a block multiplies: rows of a, columns of b, and a range of the
// depth.
struct Part {
  int64_t first_row, rows;  // the tile's rows of a and c are [first_row, rows)
  int64_t first_column;
  int64_t begin, end;  // range of k
  // elements from the begin of b and of c to the expert's matrix
  int64_t b_offset, c_offset;
};

// Stores a sum at index `at` of c, or adds it.
__device__ inline void store_sum(const Gemm& p, int64_t at, float sum) {
  if (p.type == DType::kBf16) {
    Bf16* const to = static_cast<Bf16*>(p.c) + at;
    *to = Bf16::round(sum + (p.accumulate ? to->value() : 0.0F));
  } else {
    float* const to = static_cast<float*>(p.c) + at;
    *to = p.accumulate ? *to + sum : sum;
  }
}

// A tile in fp32. Each thread computes kPart x kPart elements of c. Requires that all operands are
// fp32.
struct ExactTile {
  static constexpr int kRows = 64, kColumns = 64;
  static constexpr size_t kSharedBytes = 0;  // size of dynamic_shared()
  static constexpr int kDepth = 16, kPart = 4, kSide = kRows / kPart;
  static_assert(kSide * kSide == kThreads && kRows == kColumns);

  __device__ static void multiply(const Gemm& p, const Part& part) {
    __shared__ float left[kDepth][kRows + 1], right[kDepth][kColumns + 1];
    const int thread = static_cast<int>(threadIdx.x);
    const int row = thread / kSide, column = thread % kSide;
    const float* const a = static_cast<const float*>(p.a.data);
    const float* const b = static_cast<const float*>(p.b.data) + part.b_offset;
    float sums[kPart][kPart] = {};
    for (int64_t k = part.begin; k < part.end; k += kDepth) {
      for (int i = thread; i < kRows * kDepth; i += kThreads) {
        // Neighbouring threads read neighbouring elements.
        const bool along_k = p.a.column_step == 1;
        const int depth = along_k ? i % kDepth : i / kRows, at = along_k ? i / kDepth : i % kRows;
        const int64_t from = part.first_row + at;
        left[depth][at] = from < part.rows && k + depth < part.end
                              ? a[from * p.a.row_step + (k + depth) * p.a.column_step]
                              : 0.0F;
      }
      for (int i = thread; i < kColumns * kDepth; i += kThreads) {
        const bool along_k = p.b.row_step == 1;
        const int depth = along_k ? i % kDepth : i / kColumns;
        const int at = along_k ? i / kDepth : i % kColumns;
        const int64_t from = part.first_column + at;
        right[depth][at] = from < p.n && k + depth < part.end
                               ? b[(k + depth) * p.b.row_step + from * p.b.column_step]
                               : 0.0F;
      }
      __syncthreads();
      for (int depth = 0; depth < kDepth; ++depth) {
        float l[kPart], r[kPart];
        for (int i = 0; i < kPart; ++i) {
          l[i] = left[depth][row + i * kSide];
          r[i] = right[depth][column + i * kSide];
        }
        for (int i = 0; i < kPart; ++i)
          for (int j = 0; j < kPart; ++j) sums[i][j] += l[i] * r[j];
      }
      __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < kPart; ++i) {
#pragma unroll
      for (int j = 0; j < kPart; ++j) {
        const int64_t to_row = part.first_row + row + i * kSide;
        const int64_t to_column = part.first_column + column + j * kSide;
        if (to_row < part.rows && to_column < p.n)
          store_sum(p, part.c_offset + to_row * p.n + to_column, sums[i][j]);
      }
    }
  }
};

// An operand of a tile: a, indexed by row and depth, or b, indexed by column and depth.
struct Side {
  DType dtype;
  const void* data;
  // number of elements from one row or column to the next, and from one depth to the next
  int64_t step, depth_step;
  // the tile's rows or columns: [first, end)
  int64_t first, end;
};

// Copies one operand's tile from device memory to shared memory, in two steps: fetch() loads
// kChunks runs of eight elements per thread into registers, while the block still multiplies the
// previous tile; store() rounds them and stores them. kAlongDepth: the elements of a run lie along
// the depth; else they lie along the rows or columns.
template <bool kAlongDepth>
class SideTile {
 public:
  static constexpr int kSize = 128, kDepth = 64;
  static constexpr int kStride = (kAlongDepth ? kDepth : kSize) + kStridePadding;
  static constexpr int kElements = (kAlongDepth ? kSize : kDepth) * kStride;

  // `begin`: the first depth. vectors_ becomes true if every run is aligned for 16-byte loads. To
  // decide this, the address of the first element and the step between lines suffice, because a run
  // begins at a multiple of its own length after the begin of its line.
  __device__ SideTile(const Side& side, int64_t begin) : side_(side) {
    const int64_t first = side.first * side.step + begin * side.depth_step;
    const auto address = reinterpret_cast<uint64_t>(side.data) + first * width();
    const auto step = static_cast<uint64_t>(kAlongDepth ? side.step : side.depth_step);
    vectors_ = (address | step * width()) % sizeof(uint4) == 0;
  }

  // Loads the tile's elements at depths from `depth` on; elements at `end` and beyond become zeros.
  __device__ void fetch(int64_t depth, int64_t end) {
    for (int i = 0; i < kChunks; ++i) {
      const TileOffset offset = offset_of(i);
      const int64_t at = side_.first + offset.at, deep = depth + offset.depth;
      const int64_t from = at * side_.step + deep * side_.depth_step;
      const int64_t left =
          kAlongDepth ? (at < side_.end ? end - deep : 0) : (deep < end ? side_.end - at : 0);
      if (side_.dtype == DType::kBf16) {
        fetch_halves(static_cast<const Bf16*>(side_.data) + from, left, raw_[i]);
      } else {
        fetch_floats(static_cast<const float*>(side_.data) + from, left, raw_[i]);
      }
    }
  }
  __device__ void store(Bf16* tile) const {
    for (int i = 0; i < kChunks; ++i) {
      const TileOffset offset = offset_of(i);
      uint4 run = raw_[i][0];
      if (side_.dtype != DType::kBf16) {
        const uint4 low = raw_[i][0], high = raw_[i][1];
        run = {packed(low.x, low.y), packed(low.z, low.w), packed(high.x, high.y),
               packed(high.z, high.w)};
      }
      Bf16* const to = tile + (kAlongDepth ? offset.at * kStride + offset.depth
                                           : offset.depth * kStride + offset.at);
      *reinterpret_cast<uint4*>(to) = run;
    }
  }

 private:
  static constexpr int kRun = 8;
  static constexpr int kChunks = kSize * kDepth / kRun / kThreads;

  struct TileOffset {
    int at, depth;
  };
  __device__ static TileOffset offset_of(int i) {
    const int chunk = static_cast<int>(threadIdx.x) + i * kThreads;
    constexpr int kRuns = (kAlongDepth ? kDepth : kSize) / kRun;  // runs per row of the tile
    const int row = chunk / kRuns, begin = chunk % kRuns * kRun;
    return kAlongDepth ? TileOffset{row, begin} : TileOffset{begin, row};
  }
  __device__ uint64_t width() const {
    return side_.dtype == DType::kBf16 ? sizeof(Bf16) : sizeof(float);
  }
  __device__ static uint32_t packed(unsigned low, unsigned high) {
    return pack_bf16(__uint_as_float(low), __uint_as_float(high));
  }

  // Loads the first `left` elements of a run. The others become zeros, because memory beyond may
  // hold NaN.
  __device__ void fetch_halves(const Bf16* from, int64_t left, uint4 (&raw)[2]) const {
    if (vectors_ && left >= kRun) {
      raw[0] = *reinterpret_cast<const uint4*>(from);
      return;
    }
    const auto pair = [&](int i) {
      const unsigned low = i < left ? from[i].bits : 0U;
      const unsigned high = i + 1 < left ? from[i + 1].bits : 0U;
      return low | high << 16;
    };
    raw[0] = {pair(0), pair(2), pair(4), pair(6)};
  }
  __device__ void fetch_floats(const float* from, int64_t left, uint4 (&raw)[2]) const {
    if (vectors_ && left >= kRun) {
      raw[0] = reinterpret_cast<const uint4*>(from)[0];
      raw[1] = reinterpret_cast<const uint4*>(from)[1];
      return;
    }
    const auto one = [&](int i) { return i < left ? __float_as_uint(from[i]) : 0U; };
    raw[0] = {one(0), one(1), one(2), one(3)};
    raw[1] = {one(4), one(5), one(6), one(7)};
  }

  const Side side_;
  bool vectors_;
  uint4 raw_[kChunks][2];  // bf16 uses raw_[i][0] only
};

// A tile in bf16 on tensor cores, to which operands are rounded. Each of eight warps computes 64 x
// 32 elements of c. The next tiles are fetched while the current ones are multiplied; with this
// depth both take about the same time.
template <bool kLeftAlongDepth, bool kRightAlongDepth>
struct TensorTile {
  using Left = SideTile<kLeftAlongDepth>;
  using Right = SideTile<kRightAlongDepth>;
  static constexpr int kRows = Left::kSize, kColumns = Right::kSize;
  static constexpr int kDepth = Left::kDepth;
  static constexpr int kWarpRows = 64, kWarpColumns = 32;
  static constexpr int kTall = kWarpRows / kMmaRows, kWide = kWarpColumns / kMmaColumns;
  static_assert(kRows / kWarpRows * (kColumns / kWarpColumns) * kWarp == kThreads);
  static constexpr int kBuffer = Left::kElements + Right::kElements;
  static constexpr size_t kSharedBytes = 2 * kBuffer * sizeof(Bf16);

  __device__ static void multiply(const Gemm& p, const Part& part) {
    Bf16* const buffers = static_cast<Bf16*>(dynamic_shared());
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    const int row = warp / (kColumns / kWarpColumns) * kWarpRows;
    const int column = warp % (kColumns / kWarpColumns) * kWarpColumns;
    const bool idle = part.first_row + row >= part.rows || part.first_column + column >= p.n;
    Left left({p.a.dtype, p.a.data, p.a.row_step, p.a.column_step, part.first_row, part.rows},
              part.begin);
    const size_t width = p.b.dtype == DType::kBf16 ? sizeof(Bf16) : sizeof(float);
    Right right({p.b.dtype, static_cast<const char*>(p.b.data) + part.b_offset * width,
                 p.b.column_step, p.b.row_step, part.first_column, p.n},
                part.begin);
    float sums[kTall][kWide][4] = {};
    int buffer = 0;
    if (part.begin < part.end) {
      left.fetch(part.begin, part.end);
      right.fetch(part.begin, part.end);
      left.store(buffers);
      right.store(buffers + Left::kElements);
      __syncthreads();
    }
    for (int64_t k = part.begin; k < part.end; k += kDepth) {
      const bool more = k + kDepth < part.end;
      if (more) {
        left.fetch(k + kDepth, part.end);
        right.fetch(k + kDepth, part.end);
      }
      const Bf16* const tiles = buffers + buffer * kBuffer;
      if (!idle) multiply_staged(tiles, tiles + Left::kElements, row, column, part.end - k, sums);
      buffer ^= 1;
      if (more) {
        left.store(buffers + buffer * kBuffer);
        right.store(buffers + buffer * kBuffer + Left::kElements);
      }
      __syncthreads();
    }
    if (!idle) store(p, part, row, column, sums);
  }

 private:
  // Adds the product of two tiles in shared memory to `sums`. Elements at depths from `depth` on
  // are zeros and may be skipped.
  __device__ static void multiply_staged(const Bf16* left, const Bf16* right, int row, int column,
                                         int64_t depth, float (&sums)[kTall][kWide][4]) {
#pragma unroll
    for (int k = 0; k < kDepth; k += kMmaDepth) {
      if (k >= depth) break;
      uint32_t a[kTall][4], b[kWide / 2][2][2];
#pragma unroll
      for (int i = 0; i < kTall; ++i) {
        const int at = row + i * kMmaRows;
        load_left<!kLeftAlongDepth>(
            left + (kLeftAlongDepth ? at * Left::kStride + k : k * Left::kStride + at),
            Left::kStride, a[i]);
      }
#pragma unroll
      for (int j = 0; j < kWide / 2; ++j) {
        const int at = column + 2 * j * kMmaColumns;
        load_right<!kRightAlongDepth>(
            right + (kRightAlongDepth ? at * Right::kStride + k : k * Right::kStride + at),
            Right::kStride, b[j]);
      }
#pragma unroll
      for (int i = 0; i < kTall; ++i)
#pragma unroll
        for (int j = 0; j < kWide; ++j) mma(sums[i][j], a[i], b[j / 2][j % 2]);
    }
  }

  __device__ static void store(const Gemm& p, const Part& part, int row, int column,
                               const float (&sums)[kTall][kWide][4]) {
#pragma unroll
    for (int i = 0; i < kTall; ++i) {
#pragma unroll
      for (int j = 0; j < kWide; ++j) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int64_t to_row =
              part.first_row + row + i * kMmaRows + fragment_row() + e / 2 * (kMmaRows / 2);
          const int64_t to_column =
              part.first_column + column + j * kMmaColumns + fragment_column() + e % 2;
          if (to_row < part.rows && to_column < p.n)
            store_sum(p, part.c_offset + to_row * p.n + to_column, sums[i][j][e]);
        }
      }
    }
  }
};

}  // namespace muster::trainer::cuda
