// The arguments of the operations in quantize_ops.inc, for quantized GEMMs. Quantization rounds
// values to the values of an 8-bit type (a grid), but stores them as fp32 or bf16, which represent
// all these values exactly. Therefore matmul computes the same products as hardware with 8-bit
// types, with fp32 sums.
//
//   amax = the largest |x|, scale maps amax to the grid's maximum, q = round(x / scale),
//   a bᵀ = (q_a q_bᵀ) scale_a scale_b
//
// Matrices are (R, C).
#pragma once

#include <cstdint>
#include <optional>

#include "trainer_core/base/tensor.h"
#include "trainer_core/base/tensor_views.h"
#include "trainer_core/base/weight_blocks.h"
#include "trainer_core/ops/expert_ops.h"
#include "trainer_core/ops/token_rows.h"

namespace muster::trainer {

// The values to which quantization rounds. kE4m3: OCP's (Open Compute Project) E4M3, with 4 bits of
// exponent and 3 of mantissa, up to 448. kE5m2: OCP's E5M2, up to 57344. Both have denormals.
// kInt8: the integers in [-127, 127].
enum class NumberGrid : uint8_t { kE4m3, kE5m2, kInt8 };

// Returns the value to which a scale maps amax. For kInt8 it is half a step beyond the last
// integer, as in AQT, JAX's library for quantized training.
constexpr float grid_limit(NumberGrid grid) {
  switch (grid) {
    case NumberGrid::kE4m3:
      return 448;
    case NumberGrid::kE5m2:
      return 57'344;
    case NumberGrid::kInt8:
      return 127.5F;
  }
  return 0;
}

// The elements that share a scale: all, those of a row, or those of a column. The scales' shape is
// (1), (R) or (C).
enum class ScaleOf : uint8_t { kTensor, kRow, kColumn };

// The random numbers for stochastic rounding, which adds a uniform value in (-1/2, 1/2) to x /
// scale before it rounds. They depend on the same values as in DropoutMask.
struct RoundingNoise {
  uint64_t key = 0;
  uint32_t location = 0;  // identifies this rounding in the model; below 2^18
  SampleElements elements{};
};

// Frozen weights that are stored in blocks (base/weight_blocks.h): the bytes of codes, and a scale
// per block.
struct WeightBlocks {
  WeightType type = WeightType::kPlain;
  Tensor codes{};   // kI8 (code_bytes)
  Tensor scales{};  // fp32 (blocks)

  // Returns the blocks of `count` elements from element `first` on, both multiples of a block.
  WeightBlocks at(int64_t first, int64_t count) const {
    return {type, tensor_at(codes, code_bytes(type, first), {code_bytes(type, count)}),
            tensor_at(scales, first / kWeightBlock, {count / kWeightBlock})};
  }
};

}  // namespace muster::trainer
