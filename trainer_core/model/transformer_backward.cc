// The backward pass, in the reverse order of transformer.cc. `d_stream` carries the gradient of the
// residual stream: each sublayer adds its input's gradient to it.
#include "trainer_core/model/transformer_params.h"

namespace muster::trainer {

void Transformer::project_backward(const Dense& dense, const Tensor& dy, const Tensor& x,
                                   const Tensor& weight, const Tensor& d_weight,
                                   const Tensor& d_bias, const Tensor& dx, Accumulate accumulate) {
  if (exists(d_bias)) ops_.bias_backward(dy, d_bias, accumulate, workspace());
  if (is_quantized(dense))
    return quantized_project_backward(*dense, dy, x, weight, d_weight, dx, accumulate);
  ops_.matmul(dy, Transpose::kYes, x, Transpose::kNo, d_weight, accumulate);
  ops_.matmul(dy, Transpose::kNo, weight, Transpose::kNo, dx, Accumulate::kNo);
}

void Transformer::backward_layers(Accumulate accumulate) {
  const Tensor d_stream = activation(plan_.d_stream, {rows_, width_});
  ops_.fill(d_stream, 0);
  ops_.norm_backward(norm_, activation(plan_.delta, {rows_, width_}),
                     activation(plan_.output, {rows_, width_}), weights_->final_norm,
                     stats(plan_.final_stats), d_stream, grads_->final_norm, accumulate,
                     workspace());
  const size_t layers = plan_.layers.size();
  for (size_t i = layers; i-- > 0;) {
    if (i + 1 != layers) {  // the shared buffers still hold the last layer's forward pass
      fetch(i);
      recompute_layer(i);
    }
    backward_mlp(i, accumulate);
    backward_attention(i, accumulate);
  }
  drop(DropoutSite::kInput, 0, d_stream);
  if (exists(grads_->positions))
    ops_.positions_backward(d_stream, shape_.token_rows(), shape_.starts, grads_->positions,
                            accumulate);
  // A tied table already holds the head's gradient.
  if (accumulate == Accumulate::kNo && !plan_.model.logits_via_embedding)
    ops_.fill(grads_->embedding, 0);
  ops_.embedding_backward(view_i32(arena_, plan_.tokens, rows_), d_stream, {}, embedding_scale(),
                          grads_->embedding);
}

Tensor Transformer::normed2_gradient(size_t layer) const {
  const BufferId home =
      plan_.model.parallel_block ? plan_.layers[layer].middle : plan_.delta;  // middle has served
  return activation(home, {rows_, width_});
}

void Transformer::backward_mlp(size_t layer, Accumulate accumulate) {
  const LayerBuffers& buffers = plan_.layers[layer];
  const LayerWeights& weights = weights_->layers[layer];
  const LayerWeights& grads = grads_->layers[layer];
  const Tensor d_normed = normed2_gradient(layer);
  if (has_experts(layer)) {
    backward_experts(layer, accumulate);
  } else {
    const Tensor act = activation(buffers.act, {rows_, plan_.model.mlp_dim});
    project_backward(DenseSite{layer, DenseProduct::kDown},
                     added_gradient(DropoutSite::kMlp, layer), act, weights.down, grads.down,
                     grads.down_bias, act,
                     accumulate);  // now d_act
    drop(DropoutSite::kActivation, layer, act);
    ops_.activate_backward(plan_.activation(), act, gate_up(buffers));  // now d_gate_up
    project_backward(DenseSite{layer, DenseProduct::kGateUp}, gate_up(buffers),
                     activation(buffers.normed2, {rows_, width_}), weights.gate_up, grads.gate_up,
                     grads.gate_up_bias, d_normed, accumulate);
  }
  if (plan_.model.parallel_block) return;  // the norm is attention's, too
  ops_.norm_backward(norm_, d_normed, activation(buffers.middle, {rows_, width_}), weights.norm2,
                     stats(buffers.stats2), activation(plan_.d_stream, {rows_, width_}),
                     grads.norm2, accumulate, workspace());
}

void Transformer::backward_attention(size_t layer, Accumulate accumulate) {
  const LayerBuffers& buffers = plan_.layers[layer];
  const LayerWeights& weights = weights_->layers[layer];
  const LayerWeights& grads = grads_->layers[layer];
  const Tensor d_stream = activation(plan_.d_stream, {rows_, width_});
  const Tensor d_normed = activation(plan_.delta, {rows_, width_});
  const Tensor context = activation(buffers.context, {rows_, shape_.out_width()});
  const Tensor d_context = activation(plan_.d_context, {rows_, shape_.out_width()});
  const Tensor d_qkv = activation(plan_.d_qkv, {rows_, shape_.qkv_width()});
  project_backward(DenseSite{layer, DenseProduct::kOut},
                   added_gradient(DropoutSite::kAttention, layer), context, weights.out, grads.out,
                   grads.out_bias, d_context, accumulate);
  ops_.attention_backward(shape_, activation(buffers.qkv, {rows_, shape_.qkv_width()}),
                          weights.relative, context,
                          view(buffers.lse, {shape_.batch, shape_.heads, shape_.seq_len}),
                          d_context, d_qkv, grads.relative, accumulate, workspace());
  rope(RopeDirection::kBackward, d_qkv);
  project_backward(DenseSite{layer, DenseProduct::kQkv}, d_qkv,
                   activation(buffers.normed1, {rows_, width_}), weights.qkv, grads.qkv,
                   grads.qkv_bias, d_normed, accumulate);
  if (plan_.model.parallel_block) ops_.add(d_normed, normed2_gradient(layer), d_normed);
  ops_.norm_backward(norm_, d_normed, activation(buffers.input, {rows_, width_}), weights.norm1,
                     stats(buffers.stats1), d_stream, grads.norm1, accumulate, workspace());
}

}  // namespace muster::trainer
