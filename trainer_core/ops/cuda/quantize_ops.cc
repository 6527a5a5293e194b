// The CUDA backend's QuantizeOps.
#include "trainer_core/ops/cuda/cuda_ops.h"

namespace muster::trainer::cuda {
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

}  // namespace

void CudaOps::abs_max(const Tensor& x, ScaleOf of, const Tensor& amax, Accumulate accumulate) {
  check_size(amax, scales_of(x, of), "amax");
  if (accumulate == Accumulate::kNo) fill(amax, 0);
  cuda::abs_max(stream_, same_type({x}), rows_of(x), x.dim(x.rank - 1), x.data, of, amax.f32());
}

void CudaOps::current_scale(NumberGrid grid, const Tensor& amax, const Tensor& scale) {
  check_size(scale, amax.elements(), "scale");
  cuda::current_scale(stream_, grid, amax.elements(), amax.f32(), scale.f32());
}

void CudaOps::delayed_scale(const Tensor& amax, const Tensor& history, const Tensor& scale) {
  constexpr int64_t kOperands = 3;
  const int64_t scales = amax.elements();
  MUSTER_CHECK(scales % kOperands == 0 && scales > 0) << scales << " scales";
  check_size(scale, scales, "scale");
  const int64_t length = history.elements() / scales;
  check_size(history, scales * length, "history");
  cuda::delayed_scale(stream_, scales, length, amax.f32(), history.f32(), scale.f32());
}

void CudaOps::quantize(NumberGrid grid, const Tensor& x, ScaleOf of, const Tensor& scale,
                       const std::optional<RoundingNoise>& noise, const Tensor& out) {
  check_size(scale, scales_of(x, of), "scale");
  check_size(out, x.elements(), "the rounded numbers");
  const int64_t width = x.dim(x.rank - 1);
  cuda::quantize(stream_, {.grid = grid,
                           .rows = rows_of(x),
                           .width = width,
                           .of = of,
                           .scale = scale.f32(),
                           .noisy = noise.has_value(),
                           .key = noise ? noise->key : 0,
                           .location = noise ? noise->location : 0,
                           .elements = noise ? Elements::of(noise->elements, width) : Elements(),
                           .from_type = x.dtype,
                           .x = x.float_data(),
                           .to_type = out.dtype,
                           .out = out.float_data()});
}

void CudaOps::dequantize(const Tensor& product, const Tensor& row_scale, const Tensor& column_scale,
                         const Tensor& out, Accumulate accumulate) {
  const int64_t width = out.dim(out.rank - 1), rows = rows_of(out);
  check_size(product, out.elements(), "the product");
  const bool by_row = row_scale.elements() != 1, by_column = column_scale.elements() != 1;
  check_size(row_scale, by_row ? rows : 1, "the rows' scales");
  check_size(column_scale, by_column ? width : 1, "the columns' scales");
  cuda::dequantize(stream_, {.dtype = same_type({product, out}),
                             .rows = rows,
                             .width = width,
                             .by_row = by_row,
                             .by_column = by_column,
                             .accumulate = accumulate == Accumulate::kYes,
                             .row_scale = row_scale.f32(),
                             .column_scale = column_scale.f32(),
                             .product = product.data,
                             .out = out.data});
}

}  // namespace muster::trainer::cuda
