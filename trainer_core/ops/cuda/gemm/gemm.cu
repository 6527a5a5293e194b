// Tiled GEMMs of single matrices, and of experts, whose numbers of rows only the device has.
#include "trainer_core/ops/cuda/gemm/gemm.h"
#include "trainer_core/ops/cuda/gemm/gemm_tiles.cuh"

namespace muster::trainer::cuda {
namespace {

// The tile of c that a block computes. Tiles are ordered in bands of kBand tiles of rows, each from
// its first to its last column. Blocks that run together thus read the same rows and columns, which
// the device's cache then holds.
struct TileIndex {
  int64_t row, column;

  __device__ static TileIndex of(int64_t block, int64_t rows, int64_t columns) {
    constexpr int64_t kBand = 16;
    const int64_t band = block / (kBand * columns), within = block % (kBand * columns);
    const int64_t left = rows - band * kBand, height = left < kBand ? left : kBand;
    return {band * kBand + within % height, within / height};
  }
};
template <class Tile>
__host__ __device__ int64_t row_tiles(int64_t rows) {
  return (rows + Tile::kRows - 1) / Tile::kRows;
}
template <class Tile>
__host__ __device__ int64_t column_tiles(const Gemm& p) {
  return (p.n + Tile::kColumns - 1) / Tile::kColumns;
}

// grid (tiles)
template <class Tile>
__global__ void __launch_bounds__(kThreads) multiply_kernel(const __grid_constant__ Gemm p) {
  const TileIndex tile = TileIndex::of(blockIdx.x, row_tiles<Tile>(p.m), column_tiles<Tile>(p));
  Tile::multiply(p, {.first_row = tile.row * Tile::kRows,
                     .rows = p.m,
                     .first_column = tile.column * Tile::kColumns,
                     .begin = 0,
                     .end = p.k,
                     .b_offset = 0,
                     .c_offset = 0});
}

// grid (tiles, as if each expert had a partial one): the block searches for its expert.
template <class Tile>
__global__ void __launch_bounds__(kThreads) rows_kernel(const __grid_constant__ ExpertGemm args) {
  const Gemm& p = args.gemm;
  if (args.offsets[0] != 0 || args.offsets[args.experts] > p.m) {
    *args.fault = static_cast<int32_t>(Fault::kOffsets);
    return;
  }
  const int64_t columns = column_tiles<Tile>(p);
  int64_t block = blockIdx.x, expert = 0, rows = 0;
  for (; expert < args.experts; ++expert) {
    rows = row_tiles<Tile>(args.offsets[expert + 1] - args.offsets[expert]);
    if (block < rows * columns) break;
    block -= rows * columns;
  }
  if (expert == args.experts) return;
  const TileIndex tile = TileIndex::of(block, rows, columns);
  Tile::multiply(p, {.first_row = args.offsets[expert] + tile.row * Tile::kRows,
                     .rows = args.offsets[expert + 1],
                     .first_column = tile.column * Tile::kColumns,
                     .begin = 0,
                     .end = p.k,
                     .b_offset = expert * args.b_step,
                     .c_offset = 0});
}

// grid (tiles, E)
template <class Tile>
__global__ void __launch_bounds__(kThreads)
    gradients_kernel(const __grid_constant__ ExpertGradientGemm args) {
  const Gemm& p = args.gemm;
  if (args.offsets[0] != 0 || args.offsets[args.experts] > p.k) {
    *args.fault = static_cast<int32_t>(Fault::kOffsets);
    return;
  }
  const TileIndex tile = TileIndex::of(blockIdx.x, row_tiles<Tile>(p.m), column_tiles<Tile>(p));
  Tile::multiply(p, {.first_row = tile.row * Tile::kRows,
                     .rows = p.m,
                     .first_column = tile.column * Tile::kColumns,
                     .begin = args.offsets[blockIdx.y],
                     .end = args.offsets[blockIdx.y + 1],
                     .b_offset = 0,
                     .c_offset = blockIdx.y * args.c_step});
}

// Calls body with the tile type that multiplies the operands.
template <class Body>
void with_tile(const Gemm& p, const Body& body) {
  if (!p.rounded) {
    MUSTER_CHECK(p.a.dtype == DType::kF32 && p.b.dtype == DType::kF32)
        << "a GEMM of bf16 operands that is not rounded";
    return body(ExactTile());
  }
  const bool left = p.a.column_step == 1, right = p.b.row_step == 1;
  MUSTER_CHECK((left || p.a.row_step == 1) && (right || p.b.column_step == 1))
      << "an operand with neither rows nor columns side by side";
  if (left && right) return body(TensorTile<true, true>());
  if (left) return body(TensorTile<true, false>());
  if (right) return body(TensorTile<false, true>());
  body(TensorTile<false, false>());
}

}  // namespace

void multiply(cudaStream_t stream, const Gemm& p) {
  with_tile(p, [&](auto tile) {
    using Tile = decltype(tile);
    launch_with_shared(stream, one_block_each(row_tiles<Tile>(p.m) * column_tiles<Tile>(p)),
                       kThreads, Tile::kSharedBytes, multiply_kernel<Tile>, p);
  });
}

void multiply_rows(cudaStream_t stream, const ExpertGemm& args) {
  const Gemm& p = args.gemm;
  if (p.m == 0) return;
  with_tile(p, [&](auto tile) {
    using Tile = decltype(tile);
    const int64_t rows = row_tiles<Tile>(p.m) + args.experts;
    launch_with_shared(stream, one_block_each(rows * column_tiles<Tile>(p)), kThreads,
                       Tile::kSharedBytes, rows_kernel<Tile>, args);
  });
}

void multiply_gradients(cudaStream_t stream, const ExpertGradientGemm& args) {
  const Gemm& p = args.gemm;
  with_tile(p, [&](auto tile) {
    using Tile = decltype(tile);
    dim3 blocks = one_block_each(row_tiles<Tile>(p.m) * column_tiles<Tile>(p));
    blocks.y = static_cast<unsigned>(args.experts);
    launch_with_shared(stream, blocks, kThreads, Tile::kSharedBytes, gradients_kernel<Tile>, args);
  });
}

}  // namespace muster::trainer::cuda
