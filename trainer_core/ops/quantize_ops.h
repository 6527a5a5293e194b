// The operations of quantized GEMMs. Values are rounded to a coarse grid and stay fp32 or bf16,
// which represents every value of every grid exactly; matmul therefore multiplies them as hardware
// with such types would, and sums in fp32. The rules of ops.h for every operation apply.
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

class QuantizeOps {
 public:
  virtual ~QuantizeOps() = default;

  // amax = the largest |x| of the elements that share a scale, or its maximum with the existing
  // value. NaN counts as the largest.
  virtual void abs_max(const Tensor& x, ScaleOf of, const Tensor& amax, Accumulate accumulate) = 0;
  // Computes scales from the magnitudes of the elements themselves. If amax is 0 or not finite, the
  // scale is 1; with kInt8 it is the scale of amax = 1. `scale` may be `amax`.
  virtual void current_scale(NumberGrid grid, const Tensor& amax, const Tensor& scale) = 0;
  // Ends a step with delayed scaling, for P GEMMs with an input and a kernel (kE4m3) and a gradient
  // (kE5m2) each: amax (P, 3) enters history (P, 3, H), and scale (P, 3) = limit⁻¹ max(history), or
  // is unchanged if that is 0 or not finite. The history has Flax's order: element 0 is the newest;
  // the others shift one towards 0, the earlier newest to the end.
  virtual void delayed_scale(const Tensor& amax, const Tensor& history, const Tensor& scale) = 0;
  // out = the grid value nearest to x / scale, ties to even; values beyond the maximum become the
  // maximum. Values that are not finite become NaN, so they remain visible. `out` is fp32 or bf16.
  virtual void quantize(NumberGrid grid, const Tensor& x, ScaleOf of, const Tensor& scale,
                        const std::optional<RoundingNoise>& noise, const Tensor& out) = 0;
  // out (R, C) = product row_scale column_scale, or += …; a scale has R or C elements, or one for
  // all. `out` may be `product`.
  virtual void dequantize(const Tensor& product, const Tensor& row_scale,
                          const Tensor& column_scale, const Tensor& out, Accumulate accumulate) = 0;
};

}  // namespace muster::trainer
