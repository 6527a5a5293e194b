// The CUDA backend's QuantizeOps.
#include "trainer_core/ops/cuda/cuda_ops.h"

namespace muster::trainer::cuda {
void CudaOps::do_abs_max(const Tensor& x, ScaleOf of, const Tensor& amax, Accumulate accumulate) {
  if (accumulate == Accumulate::kNo) fill(amax, 0);
  cuda::abs_max(stream_, x.dtype, rows_of(x), x.dim(x.rank - 1), x.data, of, amax.f32());
}

void CudaOps::do_current_scale(NumberGrid grid, const Tensor& amax, const Tensor& scale) {
  cuda::current_scale(stream_, grid, amax.elements(), amax.f32(), scale.f32());
}

void CudaOps::do_delayed_scale(const Tensor& amax, const Tensor& history, const Tensor& scale) {
  const int64_t scales = amax.elements();
  const int64_t length = history.elements() / scales;
  cuda::delayed_scale(stream_, scales, length, amax.f32(), history.f32(), scale.f32());
}

void CudaOps::do_quantize(NumberGrid grid, const Tensor& x, ScaleOf of, const Tensor& scale,
                          const std::optional<RoundingNoise>& noise, const Tensor& out) {
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

void CudaOps::do_dequantize(const Tensor& product, const Tensor& row_scale,
                            const Tensor& column_scale, const Tensor& out, Accumulate accumulate) {
  const int64_t width = out.dim(out.rank - 1), rows = rows_of(out);
  const bool by_row = row_scale.elements() != 1, by_column = column_scale.elements() != 1;
  cuda::dequantize(stream_, {.dtype = product.dtype,
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

void CudaOps::do_decode_weights(const WeightBlocks& blocks, const Tensor& out) {
  cuda::decode_weights(stream_, blocks, out);
}

}  // namespace muster::trainer::cuda
