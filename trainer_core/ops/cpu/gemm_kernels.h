// The kernels of gemm.cc: serial, each dispatched to the best instruction set of the machine. gemm.cc splits a product
// into blocks and the blocks among threads.
#pragma once

#include <cstdint>

#include "trainer_core/ops/cpu/matmul_shape.h"

namespace muster::trainer::cpu {

// Part of an operand, seen as rows of a (or columns of b) by depth: element (x, k) lies at data[x * stride + k] where
// the memory runs along the depth, else at data[k * stride + x].
struct GemmOperand {
  const float* data;
  int64_t stride;
  bool along_depth;

  GemmOperand at(int64_t x, int64_t k) const {
    return {data + (along_depth ? x * stride + k : k * stride + x), stride, along_depth};
  }
};

// Rows of a and columns of b that one register tile covers: the widths of their panels.
struct GemmTile {
  int64_t rows;
  int64_t columns;
};
GemmTile gemm_tile();

// The instruction set that the kernels are dispatched to: Highway's HWY_AVX2, ….
int64_t gemm_target();

// Into panels (gemm_pack.inc) of `rows` rows or `columns` columns, the last one filled up with zeros.
void gemm_pack_a(const GemmOperand& a, int64_t rows, int64_t depth, float* panels);
void gemm_pack_b(const GemmOperand& b, int64_t columns, int64_t depth, float* panels);

// c (rows, columns) = or += the product of packed panels.
struct GemmBlock {
  int64_t rows, columns, depth;
  const float* a;  // panels of `rows` rows
  const float* b;  // panels of `columns` columns
  float* c;
  int64_t c_stride;
  bool accumulate;
};
void gemm_multiply(const GemmBlock& block);

// gemm_few_rows.cc: columns [begin, end) of a product with few rows, read where they lie. `a` is plain where b is
// transposed.
void gemm_few_rows(const MatmulShape& shape, const float* a, const float* b, float* c,
                   int64_t begin, int64_t end);

}  // namespace muster::trainer::cpu
