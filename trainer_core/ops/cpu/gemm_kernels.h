// The kernels of gemm.cc: serial, each dispatched to the best instruction set of the machine.
// gemm.cc splits a GEMM into blocks and distributes the blocks over threads.
#pragma once

#include <cstdint>

#include "trainer_core/ops/cpu/matmul_shape.h"

namespace muster::trainer::cpu {

// The contents of a panel's 32-bit slots, and thereby the GEMM's operand type.
enum class GemmFormat : uint8_t {
  kF32,         // an element
  kRoundedF32,  // an element rounded to bf16, as fp32
  kBf16Pairs,   // two elements, neighbours along the depth: the first in the lower half
};

constexpr int64_t gemm_slot_depth(GemmFormat format) {
  return format == GemmFormat::kBf16Pairs ? 2 : 1;
}
constexpr int64_t gemm_slots(GemmFormat format, int64_t depth) {
  return (depth + gemm_slot_depth(format) - 1) / gemm_slot_depth(format);
}

// Returns the format of bf16 GEMMs: kBf16Pairs if the processor multiplies those (AVX512-BF16),
// else kRoundedF32.
GemmFormat gemm_bf16_format();

// A part of an operand, viewed as rows of a (or columns of b) by depth: element (x, k) is at data[x
// * stride + k] if memory runs along the depth, else at data[k * stride + x].
struct GemmOperand {
  MatrixIn matrix;
  int64_t stride;
  bool along_depth;

  GemmOperand at(int64_t x, int64_t k) const {
    const int64_t elements = along_depth ? x * stride + k : k * stride + x;
    const auto bytes = elements * static_cast<int64_t>(dtype_bytes(matrix.dtype));
    return {{static_cast<const char*>(matrix.data) + bytes, matrix.dtype}, stride, along_depth};
  }
};

// Rows of a and columns of b per register tile: the widths of their panels.
struct GemmTile {
  int64_t rows;
  int64_t columns;
};
GemmTile gemm_tile();

// Returns the instruction set to which the kernels are dispatched: Highway's HWY_AVX2, ….
int64_t gemm_target();

// Packs into panels (gemm_pack.inc) of `rows` rows or `columns` columns; the last one is padded
// with zeros.
void gemm_pack_a(GemmFormat format, const GemmOperand& a, int64_t rows, int64_t depth,
                 float* panels);
void gemm_pack_b(GemmFormat format, const GemmOperand& b, int64_t columns, int64_t depth,
                 float* panels);

// The data that packing reads next: `rows` of `row_bytes`, `stride_bytes` apart. A GEMM prefetches
// it while it computes, so that it comes from the L2 cache and not from memory. It may extend
// beyond the matrix: a prefetch never faults.
struct GemmAhead {
  const char* data;
  int64_t rows;
  int64_t row_bytes;
  int64_t stride_bytes;
};

// c (rows, columns) = the GEMM of packed panels, plus `addend` if given; `addend` may be c.
struct GemmBlock {
  GemmFormat format;
  int64_t rows, columns;
  int64_t slots;   // of the depth
  const float* a;  // panels of `rows` rows
  const float* b;  // panels of `columns` columns
  const float* addend;
  int64_t addend_stride;
  MatrixOut c;
  int64_t c_stride;
  GemmAhead ahead;
};
void gemm_multiply(const GemmBlock& block);

// gemm_few_rows.cc: columns [begin, end) of a GEMM with few rows, read unpacked. `a` is not
// transposed if b is, which bf16 requires. All are fp32, or a and b are bf16.
void gemm_few_rows(const MatmulShape& shape, MatrixIn a, MatrixIn b, MatrixOut c, int64_t begin,
                   int64_t end);

}  // namespace muster::trainer::cpu
