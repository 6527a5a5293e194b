#include "trainer_core/ops/cpu/quantize_ops.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "trainer_core/ops/cpu/checks.h"
#include "trainer_core/ops/cpu/kernels.h"
#include "trainer_core/ops/cpu/parallel.h"

namespace muster::trainer::cpu {
namespace {

int64_t scales_of(const Tensor& x, ScaleOf of) {
  switch (of) {
    case ScaleOf::kTensor:
      return 1;
    case ScaleOf::kRow:
      return rows_of(x);
    case ScaleOf::kColumn:
      return x.dim(x.rank - 1);
  }
  return 0;
}

// Maps amax to the grid's limit with Flax's operations and AQT's: their last bits differ.
// Transformer Engine bounds the reciprocal, so that the smallest values have a scale, too.
float scale_for(NumberGrid grid, float amax) {
  if (grid == NumberGrid::kInt8) return amax / grid_limit(grid);
  return 1 / std::min(grid_limit(grid) / amax, std::numeric_limits<float>::max());
}

bool has_scale(float amax) { return std::isfinite(amax) && amax > 0; }

float larger(float a, uint32_t word) {
  return std::bit_cast<float>(std::max(std::bit_cast<uint32_t>(a), word));
}

}  // namespace

void CpuQuantizeOps::abs_max(const Tensor& x, ScaleOf of, const Tensor& amax,
                             Accumulate accumulate) {
  check_size(amax, scales_of(x, of), "amax");
  float* out = amax.f32();
  if (accumulate == Accumulate::kNo) std::fill_n(out, amax.elements(), 0.0F);
  const int64_t width = x.dim(x.rank - 1), rows = rows_of(x);
  const AbsMax args{same_type({x}), width, x.data};
  const int useful = useful_threads(threads_, x.elements());
  switch (of) {
    case ScaleOf::kTensor: {
      std::atomic<uint32_t> largest{0};
      parallel_for(useful, x.elements(), [&](int64_t begin, int64_t end, int) {
        const uint32_t mine = abs_max_range(begin, end, args);
        uint32_t known = largest;
        while (known < mine && !largest.compare_exchange_weak(known, mine)) {
        }
      });
      out[0] = larger(out[0], largest);
      return;
    }
    case ScaleOf::kRow:
      return parallel_for(useful, rows, [&](int64_t begin, int64_t end, int) {
        for (int64_t row = begin; row < end; ++row)
          out[row] = larger(out[row], abs_max_range(row * width, (row + 1) * width, args));
      });
    case ScaleOf::kColumn:
      return parallel_for(useful, width, [&](int64_t begin, int64_t end, int) {
        abs_max_columns(begin, end, rows, args, out);
      });
  }
}

void CpuQuantizeOps::current_scale(NumberGrid grid, const Tensor& amax, const Tensor& scale) {
  check_size(scale, amax.elements(), "scale");
  std::transform(amax.f32(), amax.f32() + amax.elements(), scale.f32(), [&](float largest) {
    return scale_for(grid, has_scale(largest)          ? largest
                           : grid == NumberGrid::kInt8 ? 1.0F
                                                       : grid_limit(grid));
  });
}

void CpuQuantizeOps::delayed_scale(const Tensor& amax, const Tensor& history, const Tensor& scale) {
  constexpr int64_t kOperands = 3;
  const int64_t scales = amax.elements();
  MUSTER_CHECK(scales % kOperands == 0 && scales > 0) << scales << " scales";
  check_size(scale, scales, "scale");
  const int64_t length = history.elements() / scales;
  check_size(history, scales * length, "history");
  for (int64_t i = 0; i < scales; ++i) {
    const NumberGrid grid = i % kOperands == kOperands - 1 ? NumberGrid::kE5m2 : NumberGrid::kE4m3;
    float* const row = history.f32() + i * length;
    std::rotate(row, row + 1, row + length);
    row[0] = amax.f32()[i];
    float largest = 0;
    for (int64_t step = 0; step < length; ++step)
      largest = larger(largest, std::bit_cast<uint32_t>(row[step]));
    if (has_scale(largest)) scale.f32()[i] = scale_for(grid, largest);
  }
}

void CpuQuantizeOps::quantize(NumberGrid grid, const Tensor& x, ScaleOf of, const Tensor& scale,
                              const std::optional<RoundingNoise>& noise, const Tensor& out) {
  check_size(scale, scales_of(x, of), "scale");
  check_size(out, x.elements(), "the rounded numbers");
  const Quantize args{.grid = grid,
                      .width = x.dim(x.rank - 1),
                      .of = of,
                      .scale = scale.f32(),
                      .noise = noise,
                      .from_type = x.dtype,
                      .x = x.float_data(),
                      .to_type = out.dtype,
                      .out = out.float_data()};
  parallel_for(useful_threads(threads_, x.elements()), rows_of(x),
               [&](int64_t begin, int64_t end, int) { quantize_rows(begin, end, args); });
}

void CpuQuantizeOps::dequantize(const Tensor& product, const Tensor& row_scale,
                                const Tensor& column_scale, const Tensor& out,
                                Accumulate accumulate) {
  const int64_t width = out.dim(out.rank - 1), rows = rows_of(out);
  check_size(product, out.elements(), "the product");
  const bool by_row = row_scale.elements() != 1, by_column = column_scale.elements() != 1;
  check_size(row_scale, by_row ? rows : 1, "the rows' scales");
  check_size(column_scale, by_column ? width : 1, "the columns' scales");
  const Dequantize args{.width = width,
                        .by_row = by_row,
                        .by_column = by_column,
                        .row_scale = row_scale.f32(),
                        .column_scale = column_scale.f32(),
                        .accumulate = accumulate == Accumulate::kYes,
                        .dtype = same_type({product, out}),
                        .product = product.data,
                        .out = out.data};
  parallel_for(useful_threads(threads_, out.elements()), rows,
               [&](int64_t begin, int64_t end, int) { dequantize_rows(begin, end, args); });
}

}  // namespace muster::trainer::cpu
