// The arguments of the operations of quantized GEMMs, which are in quantize_ops.inc. Values are
// rounded to a coarse grid and stay fp32 or bf16, which represents every value of every grid
// exactly; matmul therefore multiplies them as hardware with such types would, and sums in fp32.
//
//   amax = the largest |x|, scale maps amax to the grid's maximum, q = round(x / scale),
//   a bᵀ = (q_a q_bᵀ) scale_a scale_b
//
// Letters: matrices are (R, C).
#pragma once

#include <cstdint>
#include <optional>

#include "trainer_core/base/tensor.h"
#include "trainer_core/ops/expert_ops.h"
#include "trainer_core/ops/token_rows.h"

namespace muster::trainer {

// kE4m3: OCP's E4M3, 4 bits of exponent and 3 of mantissa, up to 448. kE5m2: OCP's E5M2, up to
// 57344. Both have denormals. kInt8: the integers of [-127, 127].
enum class NumberGrid : uint8_t { kE4m3, kE5m2, kInt8 };

// The value to which amax maps. AQT maps it to the edge of the last integer's bucket, half a step
// beyond it.
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

// Which elements share a scale, and the shape of scales: (1), (R) or (C).
enum class ScaleOf : uint8_t { kTensor, kRow, kColumn };

// Random numbers of stochastic rounding: adds a uniform value in (-1/2, 1/2) to x / scale. It
// depends on the same inputs as DropoutMask's elements.
struct RoundingNoise {
  uint64_t key = 0;
  uint32_t location = 0;  // below 2^18
  SampleElements elements{};
};

}  // namespace muster::trainer
