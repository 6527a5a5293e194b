// The backward pass, in the reverse order of transformer.cc. `d_stream` has the gradient of the
// residual stream; attention and the MLP each add the gradient of their input to it.
#include "trainer_core/base/tensor_views.h"
#include "trainer_core/model/transformer_params.h"

namespace muster::trainer {

void Transformer::project_backward(const Dense& dense, const Tensor& dy, const Tensor& x,
                                   const Tensor& weight, const Tensor& d_weight,
                                   const Tensor& d_bias, const Epilogue& epilogue, const Tensor& dx,
                                   Accumulate accumulate) {
  if (exists(d_bias)) ops_.bias_backward(dy, d_bias, accumulate, workspace());
  const bool quantizes = is_quantized(dense), adapts = is_adapted(dense);
  if (adapts) adapters_backward(*dense, dy, x, accumulate);
  if (quantizes) {
    quantized_project_backward(*dense, dy, x, weight, d_weight, dx, accumulate);
  } else {
    if (exists(d_weight)) ops_.matmul(dy, Transpose::kYes, x, Transpose::kNo, d_weight, accumulate);
    if (!adapts) return ops_.fused_matmul(dy, Transpose::kNo, weight, Transpose::kNo, dx, epilogue);
    ops_.matmul(dy, Transpose::kNo, weight, Transpose::kNo, dx, Accumulate::kNo);
  }
  if (adapts) add_adapters_dx(*dense, dx);
  finish_product(ops_, epilogue, dx);
}

// Computes the gradient of project_and_sum(). `d_delta` has this rank's rows; dx (T, …) has this
// rank's columns.
void Transformer::project_and_sum_backward(const DenseSite& dense, ExchangeSite site,
                                           const Tensor& d_delta, const Tensor& x,
                                           const Tensor& weight, const Stack& gradients,
                                           const Epilogue& epilogue, const Tensor& dx,
                                           Accumulate accumulate) {
  if (exists(gradients.bias)) ops_.bias_backward(d_delta, gradients.bias, accumulate, workspace());
  project_backward(dense, exchange_.all_rows({site, dense.layer}, d_delta), x, weight,
                   gradients.weight, {}, epilogue, dx, accumulate);
}

// Computes the gradient of a GEMM whose input is all rows. `x` and `dx` have this rank's rows.
void Transformer::project_all_backward(const DenseSite& dense, ExchangeSite site, const Tensor& dy,
                                       const Tensor& x, const Tensor& weight,
                                       const Stack& gradients, const Tensor& dx,
                                       Accumulate accumulate) {
  const ExchangeLabel label{site, dense.layer};
  const Tensor all = exchange_.all_rows(label, x), partial = exchange_.partial_rows(dx);
  project_backward(dense, dy, all, weight, gradients.weight, gradients.bias, {}, partial,
                   accumulate);
  exchange_.sum_rows(label, partial, dx);
}

void Transformer::finish_gradient(size_t block) {
  show_gradients(block);
  blocks_.gradient_done(block);
}

// Computes the gradient of the final norm. Requires an earlier begin_gradient() for its block.
void Transformer::end_backward(Accumulate accumulate) {
  const Tensor d_stream = stream(plan_.d_stream);
  ops_.fill(d_stream, 0);
  ops_.norm_backward(norm_, stream(plan_.delta), stream(plan_.output), weights_->final_norm,
                     stats(plan_.final_stats), d_stream, grads_->final_norm, accumulate,
                     workspace());
  release_end();
  finish_gradient(plan_.end_block());
}

Transformer::Stack Transformer::qkv_gradients(size_t layer) const {
  const LayerWeights& grads = grads_->layers[layer];
  if (!plan_.stacks_qkv() || !exists(grads.qkv)) return {grads.qkv, grads.qkv_bias};
  const int64_t rows = shape_.qkv_width();
  return {view(plan_.stacked.d_qkv, {rows, width_}),
          exists(grads.qkv_bias) ? view(plan_.stacked.d_qkv_bias, {rows}) : Tensor{}};
}

// Copies the stacked gradients to those of the parameters.
void Transformer::unstack_gradients(size_t layer, Accumulate accumulate) {
  const LayerWeights& grads = grads_->layers[layer];
  if (!exists(grads.qkv)) return;  // frozen
  const Stack stacked = qkv_gradients(layer);
  const auto move = [&](const Tensor& both, int64_t first, const Tensor& to) {
    const Tensor from = tensor_at(both, first, {to.elements()});
    if (accumulate == Accumulate::kYes) return ops_.add(to, from, to);
    ops_.copy(from, to);
  };
  move(stacked.weight, 0, grads.qkv);
  move(stacked.weight, grads.qkv.elements(), grads.kv);
  if (!exists(stacked.bias)) return;
  move(stacked.bias, 0, grads.qkv_bias);
  move(stacked.bias, grads.qkv_bias.elements(), grads.kv_bias);
}

void Transformer::embedding_backward(Accumulate wanted) {
  const OpRange range(ops_, "embedding");
  // If this rank has the head, the gradient of a tied table already contains the part of the head.
  const bool tied = plan_.model.logits_via_embedding && plan_.pipeline().ends_model();
  const Accumulate accumulate =
      blocks_.begin_gradient(plan_.embedding_block(), tied ? Accumulate::kYes : wanted);
  const Tensor d_stream = stream(plan_.d_stream);
  apply_dropout_to_own_rows(DropoutSite::kInput, 0, d_stream);
  if (exists(grads_->positions)) {
    ops_.positions_backward(d_stream, own_token_rows(), own_starts(), grads_->positions, accumulate,
                            workspace());
  }
  if (exists(grads_->embedding)) {
    if (accumulate == Accumulate::kNo) ops_.fill(grads_->embedding, 0);
    ops_.embedding_backward(view_i32(arena_, plan_.tokens, rows_),
                            exchange_.all_rows({ExchangeSite::kEmbedding}, d_stream),
                            vocabulary_slice(), embedding_scale(), grads_->embedding, workspace());
  }
  finish_gradient(plan_.embedding_block());
}

LossSum Transformer::backward_run(const LayerRun& run, const Batch& batch, Accumulate accumulate) {
  enter(run, batch.dropout);
  upload(batch);
  return backward_layers_and_ends(accumulate);
}

LossSum Transformer::backward_layers_and_ends(Accumulate wanted) {
  const OpRange range(ops_, "backward");
  LossSum sum;
  if (plan_.ends_model(run_)) sum = head_loss_backward(wanted);
  backward_layers(wanted);
  if (!broken() && plan_.begins_model(run_)) embedding_backward(wanted);
  return sum;
}

Tensor Transformer::stream_gradient() const { return stream(plan_.d_stream); }

void Transformer::backward_layers(Accumulate wanted) {
  for (size_t i = run_.end; i-- > run_.first;) {
    const OpRange layer(ops_, "layer", static_cast<int64_t>(i));
    const size_t block = plan_.layer_block(i);
    blocks_.acquire(block);
    if (i > run_.first)
      blocks_.prefetch(plan_.layer_block(i - 1));
    else
      expect(block_after_pass_);
    const Accumulate accumulate = blocks_.begin_gradient(block, wanted);
    if (broken()) return;
    replayed(Piece::kLayerBackward, i, accumulate, [&] {
      // The shared buffers still contain the tensors of the last layer's forward pass.
      if (!plan_.is_last(i)) recompute_layer(i);
      backward_through_mlp(i, accumulate);
      backward_through_attention(i, accumulate);
    });
    blocks_.release(block);
    finish_gradient(block);
  }
}

Tensor Transformer::normed2_gradient(size_t layer) const {
  // In a parallel block the backward pass does not read `middle`, so its buffer is free.
  const BufferId home = plan_.model.parallel_block ? buffers_of(layer).middle : plan_.delta;
  return stream(home);
}

void Transformer::backward_through_mlp(size_t layer, Accumulate accumulate) {
  const LayerBuffers& buffers = buffers_of(layer);
  const LayerWeights& weights = weights_->layers[layer];
  const LayerWeights& grads = grads_->layers[layer];
  const Tensor d_normed = normed2_gradient(layer);
  if (has_experts(layer)) {
    backward_through_experts(layer, accumulate);
  } else {
    const Tensor act = activation(buffers.act, {rows_, plan_.mlp_columns().count});
    const MlpActivation f = plan_.activation();
    // If neither a gate nor dropout is between the GEMM and the activation, the GEMM also computes
    // the gradients of the activation and of the bias.
    const bool fused = !f.gated && dropout_rate(DropoutSite::kActivation) == 0;
    const Tensor d_gate_up = f.gated ? gate_up(buffers) : act;
    Epilogue epilogue;
    if (fused)
      epilogue = {.activate = Epilogue::Activate::kBackward,
                  .activation = f.kind,
                  .pre = gate_up(buffers),
                  .dbias = grads.gate_up_bias,
                  .accumulate = accumulate,
                  .workspace = workspace()};
    project_and_sum_backward(DenseSite{layer, DenseProduct::kDown}, ExchangeSite::kMlpDown,
                             added_gradient(DropoutSite::kMlp, layer), act, weights.down,
                             {grads.down, grads.down_bias}, epilogue, act, accumulate);
    if (!fused) {
      apply_dropout_to_activation(layer, act);
      ops_.activate_backward(f, act, gate_up(buffers), d_gate_up);
    }
    project_all_backward(DenseSite{layer, DenseProduct::kGateUp}, ExchangeSite::kMlpUp, d_gate_up,
                         stream(buffers.normed2), weights.gate_up,
                         {grads.gate_up, fused ? Tensor{} : grads.gate_up_bias}, d_normed,
                         accumulate);
  }
  if (plan_.model.parallel_block) return;  // attention's backward pass includes the norm
  ops_.norm_backward(norm_, d_normed, stream(buffers.middle), weights.norm2, stats(buffers.stats2),
                     stream(plan_.d_stream), grads.norm2, accumulate, workspace());
}

void Transformer::backward_through_attention(size_t layer, Accumulate accumulate) {
  const LayerBuffers& buffers = buffers_of(layer);
  const LayerWeights& weights = weights_->layers[layer];
  const LayerWeights& grads = grads_->layers[layer];
  const Tensor d_stream = stream(plan_.d_stream);
  const Tensor d_normed = stream(plan_.delta);
  const Tensor context = activation(buffers.context, {rows_, shape_.out_width()});
  const Tensor d_context = activation(plan_.d_context, {rows_, shape_.out_width()});
  const Tensor d_qkv = activation(plan_.d_qkv, {rows_, shape_.qkv_width()});
  project_and_sum_backward(DenseSite{layer, DenseProduct::kOut}, ExchangeSite::kOut,
                           added_gradient(DropoutSite::kAttention, layer), context, weights.out,
                           {grads.out, grads.out_bias}, {}, d_context, accumulate);
  exchange_.attention_backward({ExchangeSite::kAttention, layer}, attention_layer(layer), d_context,
                               d_qkv, grads.relative, accumulate);
  rope(RopeDirection::kBackward, d_qkv);
  project_all_backward(DenseSite{layer, DenseProduct::kQkv}, ExchangeSite::kQkv, d_qkv,
                       stream(buffers.normed1), qkv_weights(layer).weight, qkv_gradients(layer),
                       d_normed, plan_.stacks_qkv() ? Accumulate::kNo : accumulate);
  if (plan_.stacks_qkv()) unstack_gradients(layer, accumulate);
  if (plan_.model.parallel_block) ops_.add(d_normed, normed2_gradient(layer), d_normed);
  ops_.norm_backward(norm_, d_normed, stream(buffers.input), weights.norm1, stats(buffers.stats1),
                     d_stream, grads.norm1, accumulate, workspace());
}

}  // namespace muster::trainer
