// The backward pass, in the reverse order of transformer.cc. `d_stream` carries the gradient of the
// residual stream: each sublayer adds its input's gradient to it.
#include "trainer_core/model/transformer_params.h"

namespace muster::trainer {

void Transformer::backward_layers() {
  const int64_t d = plan_.model.emb_dim;
  const Tensor d_stream = view(plan_.d_stream, {rows_, d});
  ops_.fill(d_stream, 0);
  ops_.rms_norm_backward(view(plan_.delta, {rows_, d}), view(plan_.output, {rows_, d}),
                         final_gain(param_block_), view(plan_.final_rstd, {rows_}), d_stream,
                         final_gain(grad_block_), workspace());
  const int last = plan_.model.num_layers - 1;
  for (int i = last; i >= 0; --i) {
    // The shared buffers still hold the last layer's forward pass.
    if (plan_.remat == RematPolicy::kFull && i != last) recompute_layer(i);
    backward_mlp(i);
    backward_attention(i);
  }
  // A tied table already holds the head's gradient.
  if (!plan_.model.logits_via_embedding) ops_.fill(param(grad_block_, 0), 0);
  ops_.embedding_backward(view_i32(arena_, plan_.tokens, rows_), d_stream, param(grad_block_, 0));
}

void Transformer::recompute_layer(int layer) {
  const LayerBuffers& buffers = plan_.layers[static_cast<size_t>(layer)];
  const int64_t d = plan_.model.emb_dim, m = plan_.model.mlp_dim;
  const LayerParams params = layer_params(param_block_, layer);
  ops_.rms_norm(view(buffers.input, {rows_, d}), params.norm1, plan_.model.norm_epsilon,
                view(buffers.normed1, {rows_, d}), view(buffers.rstd1, {rows_}));
  forward_attention(layer);
  // The MLP but for its last product, which nothing in backward reads.
  const Tensor gate_up = view(buffers.gate_up, {rows_, 2 * m});
  ops_.matmul(view(buffers.normed2, {rows_, d}), Transpose::kNo, params.gate_up, Transpose::kYes,
              gate_up, Accumulate::kNo);
  ops_.swiglu(gate_up, view(buffers.act, {rows_, m}));
}

void Transformer::backward_mlp(int layer) {
  const LayerBuffers& buffers = plan_.layers[static_cast<size_t>(layer)];
  const LayerParams params = layer_params(param_block_, layer);
  const LayerParams grads = layer_params(grad_block_, layer);
  const int64_t d = plan_.model.emb_dim, m = plan_.model.mlp_dim;
  const Tensor d_stream = view(plan_.d_stream, {rows_, d});
  const Tensor d_normed = view(plan_.delta, {rows_, d});
  const Tensor act = view(buffers.act, {rows_, m});
  const Tensor gate_up = view(buffers.gate_up, {rows_, 2 * m});
  ops_.matmul(d_stream, Transpose::kYes, act, Transpose::kNo, grads.down, Accumulate::kNo);
  ops_.matmul(d_stream, Transpose::kNo, params.down, Transpose::kNo, act,
              Accumulate::kNo);        // now d_act
  ops_.swiglu_backward(act, gate_up);  // now d_gate_up
  ops_.matmul(gate_up, Transpose::kYes, view(buffers.normed2, {rows_, d}), Transpose::kNo,
              grads.gate_up, Accumulate::kNo);
  ops_.matmul(gate_up, Transpose::kNo, params.gate_up, Transpose::kNo, d_normed, Accumulate::kNo);
  ops_.rms_norm_backward(d_normed, view(buffers.middle, {rows_, d}), params.norm2,
                         view(buffers.rstd2, {rows_}), d_stream, grads.norm2, workspace());
}

void Transformer::backward_attention(int layer) {
  const LayerBuffers& buffers = plan_.layers[static_cast<size_t>(layer)];
  const LayerParams params = layer_params(param_block_, layer);
  const LayerParams grads = layer_params(grad_block_, layer);
  const int64_t d = plan_.model.emb_dim, half = shape_.head_dim / 2;
  const Tensor d_stream = view(plan_.d_stream, {rows_, d});
  const Tensor d_normed = view(plan_.delta, {rows_, d});
  const Tensor context = view(buffers.context, {rows_, shape_.out_width()});
  const Tensor d_context = view(plan_.d_context, {rows_, shape_.out_width()});
  const Tensor d_qkv = view(plan_.d_qkv, {rows_, shape_.qkv_width()});
  ops_.matmul(d_stream, Transpose::kYes, context, Transpose::kNo, grads.out, Accumulate::kNo);
  ops_.matmul(d_stream, Transpose::kNo, params.out, Transpose::kNo, d_context, Accumulate::kNo);
  ops_.attention_backward(shape_, view(buffers.qkv, {rows_, shape_.qkv_width()}), context,
                          view(buffers.lse, {shape_.batch, shape_.heads, shape_.seq_len}),
                          d_context, d_qkv, workspace());
  ops_.rope(shape_, view(plan_.rope_cos, {shape_.seq_len, half}),
            view(plan_.rope_sin, {shape_.seq_len, half}), RopeDirection::kBackward, d_qkv);
  ops_.matmul(d_qkv, Transpose::kYes, view(buffers.normed1, {rows_, d}), Transpose::kNo, grads.qkv,
              Accumulate::kNo);
  ops_.matmul(d_qkv, Transpose::kNo, params.qkv, Transpose::kNo, d_normed, Accumulate::kNo);
  ops_.rms_norm_backward(d_normed, view(buffers.input, {rows_, d}), params.norm1,
                         view(buffers.rstd1, {rows_}), d_stream, grads.norm1, workspace());
}

}  // namespace muster::trainer
