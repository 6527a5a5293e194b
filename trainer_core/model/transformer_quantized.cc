// Quantized GEMMs: operands are rounded to a grid and multiplied, and the scales are applied to the
// result (base/quantization.h, ops/quantize_ops.h). With x (T, i), w (o, i) and y = x wᵀ: the
// kernel is rounded again for each GEMM, because a plan has no room for a second copy of all
// weights.
//
// Under tensor parallelism a rank has some rows of the kernels of qkv and gate_up (and so some
// columns of dy), and some columns of the kernels of out and down (and so of x). A scale along the
// split dimension is computed from the largest magnitudes of all these ranks.
#include "common/random/fnv.h"
#include "trainer_core/model/transformer_params.h"

namespace muster::trainer {
namespace {

NumberGrid grid_of(QuantizationType type, DenseOperand operand) {
  if (type == QuantizationType::kInt8) return NumberGrid::kInt8;
  return operand == DenseOperand::kOutputGradient ? NumberGrid::kE5m2 : NumberGrid::kE4m3;
}

// Return whether tensor ranks split the rows, or the columns, of an operand. They split neither
// dimension of x for qkv and gate_up, and neither of dy for out and down.
bool splits_rows_of(DenseProduct product, DenseOperand operand) {
  const bool by_columns = product == DenseProduct::kQkv || product == DenseProduct::kGateUp;
  return by_columns && operand == DenseOperand::kKernel;
}
bool splits_columns_of(DenseProduct product, DenseOperand operand) {
  const bool by_columns = product == DenseProduct::kQkv || product == DenseProduct::kGateUp;
  return by_columns == (operand == DenseOperand::kOutputGradient);
}

// Returns whether the values from which a scale is computed are on several ranks.
bool is_split(ScaleOf of, DenseProduct product, DenseOperand operand) {
  const bool rows = splits_rows_of(product, operand), columns = splits_columns_of(product, operand);
  return of == ScaleOf::kTensor ? rows || columns : of == ScaleOf::kRow ? columns : rows;
}

ExchangeSite site_of(DenseProduct product) {
  switch (product) {
    case DenseProduct::kQkv:
      return ExchangeSite::kQkv;
    case DenseProduct::kOut:
      return ExchangeSite::kOut;
    case DenseProduct::kGateUp:
      return ExchangeSite::kMlpUp;
    case DenseProduct::kDown:
      return ExchangeSite::kMlpDown;
  }
  return {};
}

}  // namespace

bool Transformer::is_quantized(const Dense& dense) const {
  return dense.has_value() && plan_.model.quantization.enabled();
}

// Returns the element of an operand in a block that has one element per scale.
Tensor Transformer::scaling_slot(float* block, const DenseSite& site, DenseOperand operand) const {
  const size_t product = site.layer * kDenseProducts + static_cast<size_t>(site.product);
  return Tensor::f32(block + product * kDenseOperands + static_cast<size_t>(operand), {1});
}

void Transformer::reset_scaling() {
  const int64_t scales = scaling_scales(plan_.model), all = scaling_elements(plan_.model);
  if (scales == 0) return;
  float* const state = arena_.f32(plan_.param_block) + plan_.stored_floats();
  ops_.fill(Tensor::f32(state, {scales}), 1);
  ops_.fill(Tensor::f32(state + scales, {all - scales}), 0);
}

std::span<float> Transformer::amaxes() {
  if (scaling_scales(plan_.model) == 0) return {};
  MUSTER_CHECK(plan_.training) << "a plan without magnitudes";
  return {arena_.f32(plan_.quantized.amax), static_cast<size_t>(scaling_scales(plan_.model))};
}

void Transformer::advance_scaling() {
  const int64_t scales = scaling_scales(plan_.model);
  if (scales == 0) return;
  float* const state = arena_.f32(plan_.param_block) + plan_.stored_floats();
  const int64_t history = plan_.model.quantization.amax_history_length;
  ops_.delayed_scale(view(plan_.quantized.amax, {scales}),
                     Tensor::f32(state + scales, {scales, history}), Tensor::f32(state, {scales}));
}

// Returns the noise of AQT's stochastic rounding of gradients. The GEMMs that compute dx and dw use
// different noise. If ranks split the columns, each rank's columns have different numbers.
RoundingNoise Transformer::rounding_noise(const DenseSite& site, bool for_kernel) const {
  const auto product =
      static_cast<uint32_t>(site.layer * kDenseProducts) + static_cast<uint32_t>(site.product);
  SampleElements elements{dropout_->first_sample, shape_.token_rows()};
  const AxisCoordinate& tensor = plan_.part().tensor;
  if (tensor.ranks > 1 && splits_columns_of(site.product, DenseOperand::kOutputGradient)) {
    const int64_t apart = largest_share(plan_.model.mlp_dim, tensor.ranks) * 2 + shape_.qkv_width();
    elements.columns = tensor.ranks * apart;
    elements.first_column = tensor.index * apart;
  }
  return {.key = dropout_->seed ^ fnv1a("stochastic rounding"),
          .location = 2 * product + (for_kernel ? 1 : 0),
          .elements = elements};
}

// Rounds x into the buffers `into`. `of` is used for int8 only; fp8 has one scale per tensor.
Transformer::Rounded Transformer::round(const DenseSite& site, DenseOperand operand,
                                        const Tensor& x, ScaleOf of, RoundedBuffers into,
                                        const std::optional<RoundingNoise>& noise) {
  const QuantizationType type = plan_.model.quantization.type;
  const NumberGrid grid = grid_of(type, operand);
  const Tensor values = activation(into.values, {x.dim(0), x.dim(1)});
  if (type == QuantizationType::kFp8Delayed) {
    const Tensor scale =
        scaling_slot(arena_.f32(plan_.param_block) + plan_.stored_floats(), site, operand);
    if (dropout_) {
      ops_.abs_max(x, ScaleOf::kTensor,
                   scaling_slot(arena_.f32(plan_.quantized.amax), site, operand), Accumulate::kYes);
    }
    ops_.quantize(grid, x, ScaleOf::kTensor, scale, std::nullopt, values);
    return {values, scale};
  }
  if (type == QuantizationType::kFp8Current) of = ScaleOf::kTensor;
  const Tensor scale = view(into.scale, {of == ScaleOf::kTensor ? 1
                                         : of == ScaleOf::kRow  ? x.dim(0)
                                                                : x.dim(1)});
  ops_.abs_max(x, of, scale, Accumulate::kNo);
  if (is_split(of, site.product, operand))
    exchange_.take_largest({site_of(site.product), site.layer}, scale);
  ops_.current_scale(grid, scale, scale);
  ops_.quantize(grid, x, of, scale, noise, values);
  return {values, scale};
}

void Transformer::quantized_project(const DenseSite& site, const Tensor& x, const Tensor& weight,
                                    const Tensor& y) {
  const QuantizedBuffers& buffers = plan_.quantized;
  const Rounded input =
      round(site, DenseOperand::kInput, x, ScaleOf::kRow, {buffers.input, buffers.left_scale});
  const Rounded kernel = round(site, DenseOperand::kKernel, weight, ScaleOf::kRow,
                               {buffers.kernel, buffers.right_scale});
  ops_.matmul(input.values, Transpose::kNo, kernel.values, Transpose::kYes, y, Accumulate::kNo);
  ops_.dequantize(y, input.scale, kernel.scale, y, Accumulate::kNo);
}

// int8 rounds every operand for each GEMM again, with scales along the contracted dimension. fp8
// rounds the gradient once for both GEMMs.
void Transformer::quantized_project_backward(const DenseSite& site, const Tensor& dy,
                                             const Tensor& x, const Tensor& weight,
                                             const Tensor& d_weight, const Tensor& dx,
                                             Accumulate accumulate) {
  const QuantizedBuffers& buffers = plan_.quantized;
  const QuantizationConfig& quantization = plan_.model.quantization;
  const bool is_int8 = quantization.type == QuantizationType::kInt8;
  const auto round_gradient = [&](ScaleOf of, bool for_kernel) {
    std::optional<RoundingNoise> noise;
    if (is_int8 && quantization.stochastic_rounding) noise = rounding_noise(site, for_kernel);
    return round(site, DenseOperand::kOutputGradient, dy, of,
                 {buffers.output_gradient, buffers.left_scale}, noise);
  };
  Rounded gradient;
  if (!exists(d_weight)) {
    gradient = round_gradient(ScaleOf::kRow, false);
  } else if (is_int8 && !quantization.int8_weight_gradients) {
    ops_.matmul(dy, Transpose::kYes, x, Transpose::kNo, d_weight, accumulate);
  } else {
    gradient = round_gradient(ScaleOf::kColumn, true);
    const Rounded input = round(site, DenseOperand::kInput, x, ScaleOf::kColumn,
                                {buffers.input, buffers.right_scale});
    const Tensor product = view(buffers.kernel, {weight.dim(0), weight.dim(1)});
    ops_.matmul(gradient.values, Transpose::kYes, input.values, Transpose::kNo, product,
                Accumulate::kNo);
    ops_.dequantize(product, gradient.scale, input.scale, d_weight, accumulate);
  }
  if (is_int8 && exists(d_weight)) gradient = round_gradient(ScaleOf::kRow, false);
  const Rounded kernel = round(site, DenseOperand::kKernel, weight, ScaleOf::kColumn,
                               {buffers.kernel, buffers.right_scale});
  ops_.matmul(gradient.values, Transpose::kNo, kernel.values, Transpose::kNo, dx, Accumulate::kNo);
  ops_.dequantize(dx, gradient.scale, kernel.scale, dx, Accumulate::kNo);
}

}  // namespace muster::trainer
