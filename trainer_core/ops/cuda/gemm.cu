// Products tile by tile: of one matrix, and of experts, whose rows only the device knows.
#include "trainer_core/ops/cuda/gemm.h"
#include "trainer_core/ops/cuda/gemm_tiles.cuh"

namespace muster::trainer::cuda {
namespace {

// grid (tiles of columns, tiles of rows)
template <class Tile>
__global__ void __launch_bounds__(kThreads) multiply_kernel(const __grid_constant__ Product p) {
  Tile::multiply(p, {.first_row = static_cast<int64_t>(blockIdx.y) * Tile::kRows,
                     .rows = p.m,
                     .first_column = static_cast<int64_t>(blockIdx.x) * Tile::kColumns,
                     .begin = 0,
                     .end = p.k,
                     .b_offset = 0,
                     .c_offset = 0});
}

// grid (tiles of columns, tiles of rows as if each expert had a part of one): the block looks for its expert.
template <class Tile>
__global__ void __launch_bounds__(kThreads)
    rows_kernel(const __grid_constant__ ExpertProduct args) {
  const Product& p = args.product;
  if (args.offsets[0] != 0 || args.offsets[args.experts] > p.m) {
    *args.fault = static_cast<int32_t>(Fault::kOffsets);
    return;
  }
  int64_t tile = blockIdx.y, expert = 0;
  for (; expert < args.experts; ++expert) {
    const int64_t rows = args.offsets[expert + 1] - args.offsets[expert];
    const int64_t tiles = (rows + Tile::kRows - 1) / Tile::kRows;
    if (tile < tiles) break;
    tile -= tiles;
  }
  if (expert == args.experts) return;
  Tile::multiply(p, {.first_row = args.offsets[expert] + tile * Tile::kRows,
                     .rows = args.offsets[expert + 1],
                     .first_column = static_cast<int64_t>(blockIdx.x) * Tile::kColumns,
                     .begin = 0,
                     .end = p.k,
                     .b_offset = expert * args.b_step,
                     .c_offset = 0});
}

// grid (tiles of columns, tiles of rows, E)
template <class Tile>
__global__ void __launch_bounds__(kThreads)
    gradients_kernel(const __grid_constant__ ExpertGradient args) {
  const Product& p = args.product;
  if (args.offsets[0] != 0 || args.offsets[args.experts] > p.k) {
    *args.fault = static_cast<int32_t>(Fault::kOffsets);
    return;
  }
  Tile::multiply(p, {.first_row = static_cast<int64_t>(blockIdx.y) * Tile::kRows,
                     .rows = p.m,
                     .first_column = static_cast<int64_t>(blockIdx.x) * Tile::kColumns,
                     .begin = args.offsets[blockIdx.z],
                     .end = args.offsets[blockIdx.z + 1],
                     .b_offset = 0,
                     .c_offset = blockIdx.z * args.c_step});
}

// Calls body with the tile that the operands are multiplied by.
template <class Body>
void with_tile(const Product& p, const Body& body) {
  if (!p.rounded) return body(ExactTile());
  const bool left = p.a.column_step == 1, right = p.b.row_step == 1;
  if (left && right) return body(TensorTile<true, true>());
  if (left) return body(TensorTile<true, false>());
  if (right) return body(TensorTile<false, true>());
  body(TensorTile<false, false>());
}

// The second dimension of a grid ends at 65535, which is four million rows.
unsigned tiles_of(int64_t n, int64_t tile) { return static_cast<unsigned>(ceil_div(n, tile)); }

}  // namespace

void multiply(cudaStream_t stream, const Product& p) {
  with_tile(p, [&](auto tile) {
    using Tile = decltype(tile);
    launch(stream, dim3(tiles_of(p.n, Tile::kColumns), tiles_of(p.m, Tile::kRows)), kThreads,
           multiply_kernel<Tile>, p);
  });
}

void multiply_rows(cudaStream_t stream, const ExpertProduct& args) {
  const Product& p = args.product;
  if (p.m == 0) return;
  with_tile(p, [&](auto tile) {
    using Tile = decltype(tile);
    const unsigned rows = tiles_of(p.m, Tile::kRows) + static_cast<unsigned>(args.experts);
    launch(stream, dim3(tiles_of(p.n, Tile::kColumns), rows), kThreads, rows_kernel<Tile>, args);
  });
}

void multiply_gradients(cudaStream_t stream, const ExpertGradient& args) {
  const Product& p = args.product;
  with_tile(p, [&](auto tile) {
    using Tile = decltype(tile);
    launch(stream,
           dim3(tiles_of(p.n, Tile::kColumns), tiles_of(p.m, Tile::kRows),
                static_cast<unsigned>(args.experts)),
           kThreads, gradients_kernel<Tile>, args);
  });
}

}  // namespace muster::trainer::cuda
