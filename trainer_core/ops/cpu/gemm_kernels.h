// The kernels of gemm.cc. gemm.cc splits a GEMM into blocks and distributes the blocks over
// threads; a kernel runs on one thread, with the best instruction set of the machine.
#pragma once

#include <cstdint>

#include "trainer_core/ops/cpu/matmul_shape.h"

namespace muster::trainer::cpu {

// The contents of the 32-bit slots of which panels consist, which determine the type in which a
// GEMM multiplies.
enum class GemmFormat : uint8_t {
  kF32,         // one fp32 element
  kRoundedF32,  // one element, rounded to bf16 and stored as fp32
  // two bf16 elements that are neighbours along the depth; the first is in the lower half
  kBf16Pairs,
};

// Returns the number of elements in a slot.
constexpr int64_t gemm_slot_depth(GemmFormat format) {
  return format == GemmFormat::kBf16Pairs ? 2 : 1;
}
// Returns the number of slots for `depth` elements.
constexpr int64_t gemm_slots(GemmFormat format, int64_t depth) {
  return (depth + gemm_slot_depth(format) - 1) / gemm_slot_depth(format);
}

// Returns the format of bf16 GEMMs: kBf16Pairs if the processor can multiply pairs (AVX512-BF16),
// else kRoundedF32.
GemmFormat gemm_bf16_format();

// A part of an operand as a matrix (rows of a, or columns of b) by depth. Element (x, k) is at
// data[x * stride + k] if along_depth is true, else at data[k * stride + x].
struct GemmOperand {
  MatrixIn matrix;
  int64_t stride;
  bool along_depth;

  // Returns the part of the operand that begins at element (x, k).
  GemmOperand at(int64_t x, int64_t k) const {
    const int64_t elements = along_depth ? x * stride + k : k * stride + x;
    const auto bytes = elements * static_cast<int64_t>(dtype_bytes(matrix.dtype));
    return {{static_cast<const char*>(matrix.data) + bytes, matrix.dtype}, stride, along_depth};
  }
};

// The rows of a and columns of b that a kernel multiplies in registers at once. They are also the
// widths of the panels.
struct GemmTile {
  int64_t rows;
  int64_t columns;
};
GemmTile gemm_tile();

// Returns the instruction set to which the kernels are dispatched: Highway's HWY_AVX2, ….
int64_t gemm_target();

// Pack an operand of `rows` rows, or of `columns` columns, into panels (gemm_pack.inc); the last
// panel is padded with zeros.
void gemm_pack_a(GemmFormat format, const GemmOperand& a, int64_t rows, int64_t depth,
                 float* panels);
void gemm_pack_b(GemmFormat format, const GemmOperand& b, int64_t columns, int64_t depth,
                 float* panels);

// The data that the next packing reads: `rows` rows of `row_bytes`, which lie `stride_bytes` apart.
// A kernel prefetches this data while it computes, so that packing then reads the L2 cache instead
// of memory. The data may extend beyond the matrix, because a prefetch never faults.
struct GemmAhead {
  const char* data;
  int64_t rows;
  int64_t row_bytes;
  int64_t stride_bytes;
};

// The arguments of gemm_multiply(): c (rows, columns) = the product of packed panels, plus `addend`
// if that is not null. `addend` may be c.
struct GemmBlock {
  GemmFormat format;
  int64_t rows, columns;
  int64_t slots;   // depth, in slots
  const float* a;  // panels of `rows` rows
  const float* b;  // panels of `columns` columns
  const float* addend;
  int64_t addend_stride;
  MatrixOut c;
  int64_t c_stride;
  GemmAhead ahead;
};
void gemm_multiply(const GemmBlock& block);

// Computes columns [begin, end) of a GEMM with few rows, without packing (gemm_few_rows.cc).
// Requires that not both operands are transposed, and for bf16 that b is transposed. All operands
// are fp32, or a and b are bf16.
void gemm_few_rows(const MatmulShape& shape, MatrixIn a, MatrixIn b, MatrixOut c, int64_t begin,
                   int64_t end);

}  // namespace muster::trainer::cpu
