// Products by tiles in shared memory (a block has kTile x kTile numbers of c, a thread kPart x kPart of them), with fp32 multiply-adds and no
// tensor cores: right for every shape, fast for none.
#include "trainer_core/ops/cuda/device.cuh"
#include "trainer_core/ops/cuda/gemm.h"

namespace muster::trainer::cuda {
namespace {

constexpr int kTile = 64, kDepth = 16, kPart = 4, kSide = kTile / kPart;
static_assert(kSide * kSide == kThreads);

// From the offset of an expert's part.
__device__ inline float load(const Operand& operand, int64_t at, bool rounded) {
  if (operand.dtype == DType::kBf16) return to_float(static_cast<const Bf16*>(operand.data)[at]);
  const float value = static_cast<const float*>(operand.data)[at];
  return rounded ? to_float(Bf16::round(value)) : value;
}

// What of the operands a block multiplies: rows of a and columns of b of its tile, and the depth between.
struct Part {
  int64_t first_row, rows;  // of a and c: [first_row, rows)
  int64_t first_column;
  int64_t begin, end;  // of k
  int64_t b_offset, c_offset;
};

__device__ inline void multiply_tile(const Product& p, const Part& part) {
  __shared__ float left[kDepth][kTile + 1], right[kDepth][kTile + 1];
  const int thread = static_cast<int>(threadIdx.x);
  const int row = thread / kSide, column = thread % kSide;
  float sums[kPart][kPart] = {};
  for (int64_t k = part.begin; k < part.end; k += kDepth) {
    for (int i = thread; i < kTile * kDepth; i += kThreads) {
      // Neighbouring threads read what lies side by side.
      const bool along_k = p.a.column_step == 1;
      const int depth = along_k ? i % kDepth : i / kTile, at = along_k ? i / kDepth : i % kTile;
      const int64_t from = part.first_row + at;
      left[depth][at] =
          from < part.rows && k + depth < part.end
              ? load(p.a, from * p.a.row_step + (k + depth) * p.a.column_step, p.rounded)
              : 0.0F;
    }
    for (int i = thread; i < kTile * kDepth; i += kThreads) {
      const bool along_k = p.b.row_step == 1;
      const int depth = along_k ? i % kDepth : i / kTile, at = along_k ? i / kDepth : i % kTile;
      const int64_t from = part.first_column + at;
      right[depth][at] =
          from < p.n && k + depth < part.end
              ? load(p.b, part.b_offset + (k + depth) * p.b.row_step + from * p.b.column_step,
                     p.rounded)
              : 0.0F;
    }
    __syncthreads();
    for (int depth = 0; depth < kDepth; ++depth) {
      float a[kPart], b[kPart];
      for (int i = 0; i < kPart; ++i) {
        a[i] = left[depth][row + i * kSide];
        b[i] = right[depth][column + i * kSide];
      }
      for (int i = 0; i < kPart; ++i)
        for (int j = 0; j < kPart; ++j) sums[i][j] += a[i] * b[j];
    }
    __syncthreads();
  }
  for (int i = 0; i < kPart; ++i) {
    for (int j = 0; j < kPart; ++j) {
      const int64_t to_row = part.first_row + row + i * kSide;
      const int64_t to_column = part.first_column + column + j * kSide;
      if (to_row >= part.rows || to_column >= p.n) continue;
      const int64_t at = part.c_offset + to_row * p.n + to_column;
      if (p.type == DType::kBf16) {
        Bf16* const to = static_cast<Bf16*>(p.c) + at;
        *to = Bf16::round(sums[i][j] + (p.accumulate ? to->value() : 0.0F));
      } else {
        float* const to = static_cast<float*>(p.c) + at;
        *to = p.accumulate ? *to + sums[i][j] : sums[i][j];
      }
    }
  }
}

// grid (tiles of columns, tiles of rows)
__global__ void multiply_kernel(Product p) {
  multiply_tile(p, {.first_row = static_cast<int64_t>(blockIdx.y) * kTile,
                    .rows = p.m,
                    .first_column = static_cast<int64_t>(blockIdx.x) * kTile,
                    .begin = 0,
                    .end = p.k,
                    .b_offset = 0,
                    .c_offset = 0});
}

// grid (tiles of columns, tiles of rows as if each expert had a part of one): the block looks for its expert.
__global__ void rows_kernel(ExpertProduct args) {
  const Product& p = args.product;
  if (args.offsets[0] != 0 || args.offsets[args.experts] > p.m) {
    *args.fault = static_cast<int32_t>(Fault::kOffsets);
    return;
  }
  int64_t tile = blockIdx.y, expert = 0;
  for (; expert < args.experts; ++expert) {
    const int64_t rows = args.offsets[expert + 1] - args.offsets[expert];
    const int64_t tiles = (rows + kTile - 1) / kTile;
    if (tile < tiles) break;
    tile -= tiles;
  }
  if (expert == args.experts) return;
  multiply_tile(p, {.first_row = args.offsets[expert] + tile * kTile,
                    .rows = args.offsets[expert + 1],
                    .first_column = static_cast<int64_t>(blockIdx.x) * kTile,
                    .begin = 0,
                    .end = p.k,
                    .b_offset = expert * args.b_step,
                    .c_offset = 0});
}

// grid (tiles of columns, tiles of rows, E)
__global__ void gradients_kernel(ExpertGradient args) {
  const Product& p = args.product;
  if (args.offsets[0] != 0 || args.offsets[args.experts] > p.k) {
    *args.fault = static_cast<int32_t>(Fault::kOffsets);
    return;
  }
  multiply_tile(p, {.first_row = static_cast<int64_t>(blockIdx.y) * kTile,
                    .rows = p.m,
                    .first_column = static_cast<int64_t>(blockIdx.x) * kTile,
                    .begin = args.offsets[blockIdx.z],
                    .end = args.offsets[blockIdx.z + 1],
                    .b_offset = 0,
                    .c_offset = blockIdx.z * args.c_step});
}

// The second dimension of a grid ends at 65535, which is four million rows.
unsigned tiles_of(int64_t n) { return static_cast<unsigned>(ceil_div(n, kTile)); }

}  // namespace

void multiply(cudaStream_t stream, const Product& p) {
  launch(stream, dim3(tiles_of(p.n), tiles_of(p.m)), kThreads, multiply_kernel, p);
}

void multiply_rows(cudaStream_t stream, const ExpertProduct& args) {
  const Product& p = args.product;
  if (p.m == 0) return;
  launch(stream, dim3(tiles_of(p.n), tiles_of(p.m) + static_cast<unsigned>(args.experts)), kThreads,
         rows_kernel, args);
}

void multiply_gradients(cudaStream_t stream, const ExpertGradient& args) {
  const Product& p = args.product;
  launch(stream, dim3(tiles_of(p.n), tiles_of(p.m), static_cast<unsigned>(args.experts)), kThreads,
         gradients_kernel, args);
}

}  // namespace muster::trainer::cuda
