// The part of the op table that quantized products need: numbers are rounded to a coarse grid and stay fp32 or bf16, in which
// every number of every grid is exact; so matmul multiplies them as a processor with such numbers would, and sums in fp32. What ops.h
// says of every op holds for these.
//
//   amax = the largest |x|, scale = what makes of it the largest number of the grid, q = round(x / scale),
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

// kE4m3: OCP's E4M3, 4 bits of exponent and 3 of mantissa, up to 448. kE5m2: OCP's E5M2, up to 57344. Both have denormals.
// kInt8: the integers of [-127, 127].
enum class NumberGrid : uint8_t { kE4m3, kE5m2, kInt8 };

// What amax maps to. AQT maps it to the edge of the last integer's bucket, which is half a step beyond it.
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

// Which numbers share a scale, and which shape scales have: (1), (R) or (C).
enum class ScaleOf : uint8_t { kTensor, kRow, kColumn };

// Of stochastic rounding: what is added to x / scale is uniform in (-1/2, 1/2). It depends on what DropoutMask's elements do.
struct RoundingNoise {
  uint64_t key = 0;
  uint32_t place = 0;  // below 2^18
  SampleElements elements{};
};

class QuantizeOps {
 public:
  virtual ~QuantizeOps() = default;

  // amax = the largest |x| of what shares a scale, or the larger of that and what is there. NaN counts as the largest.
  virtual void abs_max(const Tensor& x, ScaleOf of, const Tensor& amax, Accumulate accumulate) = 0;
  // Scales from the magnitudes of the numbers themselves. Where amax is 0 or not finite: 1, and of kInt8 what 1 would have. `scale`
  // may be `amax`.
  virtual void current_scale(NumberGrid grid, const Tensor& amax, const Tensor& scale) = 0;
  // The end of a step with delayed scaling, for P products with an input and a kernel (kE4m3) and a gradient (kE5m2) each: amax
  // (P, 3) joins history (P, 3, H), and scale (P, 3) = limit⁻¹ max(history), or stays where that is 0 or not finite. The history
  // is Flax's: element 0 is the newest, and the others move one towards 0, the earlier newest to the end.
  virtual void delayed_scale(const Tensor& amax, const Tensor& history, const Tensor& scale) = 0;
  // out = the nearest number of the grid to x / scale, of two equally near ones the even one; beyond the largest number the
  // largest. What is not finite becomes NaN, so that it is not lost. `out` is fp32 or bf16.
  virtual void quantize(NumberGrid grid, const Tensor& x, ScaleOf of, const Tensor& scale,
                        const std::optional<RoundingNoise>& noise, const Tensor& out) = 0;
  // out (R, C) = product row_scale column_scale, or += …; scales have R or C numbers, or one for all. `out` may be `product`.
  virtual void dequantize(const Tensor& product, const Tensor& row_scale,
                          const Tensor& column_scale, const Tensor& out, Accumulate accumulate) = 0;
};

}  // namespace muster::trainer
