// A layer: the parts of its forward pass, and the recomputation for its backward pass.
#include "common/random/fnv.h"
#include "trainer_core/base/tensor_views.h"
#include "trainer_core/model/transformer_params.h"

namespace muster::trainer {

void Transformer::make_normed1(size_t layer) {
  const LayerBuffers& buffers = buffers_of(layer);
  ops_.norm(norm_, stream(buffers.input), weights_->layers[layer].norm1, stream(buffers.normed1),
            stats(buffers.stats1));
}

void Transformer::make_qkv(size_t layer) {
  const LayerBuffers& buffers = buffers_of(layer);
  const Stack weights = qkv_weights(layer);
  const Tensor qkv = activation(buffers.qkv, {rows_, shape_.qkv_width()});
  const Tensor normed = exchange_.all_rows({ExchangeSite::kQkv, layer}, stream(buffers.normed1));
  project(DenseSite{layer, DenseProduct::kQkv}, normed, weights.weight, {.bias = weights.bias},
          qkv);
  rope(RopeDirection::kForward, qkv);
  exchange_.to_heads({ExchangeSite::kQkv, layer}, shape_, qkv);
}

Transformer::Stack Transformer::qkv_weights(size_t layer) {
  const LayerWeights& weights = weights_->layers[layer];
  if (!plan_.stacks_qkv()) return {weights.qkv, weights.qkv_bias};
  const int64_t queries = shape_.out_width(), rows = shape_.qkv_width();
  const auto stack = [&](const Tensor& q, const Tensor& kv, const Tensor& both) {
    const int64_t width = both.elements() / rows;
    ops_.copy(q, tensor_at(both, 0, {queries * width}));
    ops_.copy(kv, tensor_at(both, queries * width, {(rows - queries) * width}));
    return both;
  };
  Stack stacked{stack(weights.qkv, weights.kv, activation(plan_.stacked.qkv, {rows, width_})), {}};
  if (exists(weights.qkv_bias))
    stacked.bias = stack(weights.qkv_bias, weights.kv_bias, view(plan_.stacked.qkv_bias, {rows}));
  return stacked;
}

AttentionLayer Transformer::attention_layer(size_t layer) const {
  const LayerBuffers& buffers = buffers_of(layer);
  return {.shape = shape_,
          .qkv = activation(buffers.qkv, {rows_, shape_.qkv_width()}),
          .bias = weights_->layers[layer].relative,
          .out = activation(buffers.context, {rows_, shape_.out_width()}),
          .lse = view(buffers.lse, {shape_.batch, shape_.heads, shape_.seq_len}),
          .workspace = workspace()};
}

// Attends to the tokens of this call and, in decoding plans, to those in the cache.
void Transformer::make_context(size_t layer) {
  if (!plan_.decodes())
    return exchange_.attention({ExchangeSite::kAttention, layer}, attention_layer(layer));
  const LayerBuffers& buffers = buffers_of(layer);
  const CacheBuffers& caches = plan_.caches[layer];
  const int64_t blocks = plan_.cache.blocks, positions = CacheSize::kBlockPositions;
  const bool is_int8 = plan_.cache.is_int8;
  const auto elements = [&](BufferId id) {
    return Tensor::of(is_int8 ? DType::kI8 : plan_.dtype, arena_.buffer(id),
                      {blocks, shape_.kv_heads, positions, shape_.head_dim});
  };
  const auto scales = [&](BufferId id) {
    return is_int8 ? view(id, {blocks, shape_.kv_heads, positions}) : Tensor{};
  };
  ops_.attention_paged(shape_, paged_rows(), activation(buffers.qkv, {rows_, shape_.qkv_width()}),
                       weights_->layers[layer].relative,
                       {elements(caches.keys), elements(caches.values), scales(caches.key_scales),
                        scales(caches.value_scales)},
                       activation(buffers.context, {rows_, shape_.out_width()}), workspace());
}

void Transformer::make_middle(size_t layer) {
  const LayerBuffers& buffers = buffers_of(layer);
  const LayerWeights& weights = weights_->layers[layer];
  const Tensor delta = stream(plan_.delta);
  project_and_sum(DenseSite{layer, DenseProduct::kOut}, ExchangeSite::kOut,
                  activation(buffers.context, {rows_, shape_.out_width()}), weights.out,
                  weights.out_bias);
  apply_dropout_to_own_rows(DropoutSite::kAttention, layer, delta);
  const Tensor input = stream(buffers.input);
  const Tensor middle = stream(buffers.middle);
  if (plan_.model.parallel_block) return ops_.add(input, delta, middle);
  ops_.add_norm(norm_, input, delta, weights.norm2, middle, stream(buffers.normed2),
                stats(buffers.stats2));
}

void Transformer::make_normed2(size_t layer) {
  const LayerBuffers& buffers = buffers_of(layer);
  ops_.norm(norm_, stream(buffers.middle), weights_->layers[layer].norm2, stream(buffers.normed2),
            stats(buffers.stats2));
}

// Without a gate, the GEMM also computes the activation.
void Transformer::make_gate_up(size_t layer, bool with_act) {
  if (has_experts(layer)) {
    make_expert_gate_up(layer);
    if (with_act) make_expert_act(layer);
    return;
  }
  const LayerBuffers& buffers = buffers_of(layer);
  const LayerWeights& weights = weights_->layers[layer];
  const Tensor normed = exchange_.all_rows({ExchangeSite::kMlpUp, layer}, stream(buffers.normed2));
  const DenseSite site{layer, DenseProduct::kGateUp};
  Epilogue epilogue{.bias = weights.gate_up_bias};
  const MlpActivation activation = plan_.activation();
  if (!with_act || activation.gated) {
    project(site, normed, weights.gate_up, epilogue, gate_up(buffers));
    if (with_act) make_act(layer);
    return;
  }
  const Tensor act = this->activation(buffers.act, {rows_, plan_.mlp_columns().count});
  epilogue.activate = Epilogue::Activate::kForward;
  epilogue.activation = activation.kind;
  epilogue.pre = gate_up(buffers);
  project(site, normed, weights.gate_up, epilogue, act);
  apply_dropout_to_activation(layer, act);
}

void Transformer::make_act(size_t layer) {
  if (has_experts(layer)) return make_expert_act(layer);
  const LayerBuffers& buffers = buffers_of(layer);
  const Tensor act = activation(buffers.act, {rows_, plan_.mlp_columns().count});
  ops_.activate(plan_.activation(), gate_up(buffers), act);
  apply_dropout_to_activation(layer, act);
}

void Transformer::make_delta(size_t layer) {
  if (has_experts(layer)) return make_expert_delta(layer);
  const LayerWeights& weights = weights_->layers[layer];
  project_and_sum(DenseSite{layer, DenseProduct::kDown}, ExchangeSite::kMlpDown,
                  activation(buffers_of(layer).act, {rows_, plan_.mlp_columns().count}),
                  weights.down, weights.down_bias);
  apply_dropout_to_own_rows(DropoutSite::kMlp, layer, stream(plan_.delta));
}

double Transformer::dropout_rate(DropoutSite site) const {
  if (!dropout_) return 0;
  return site == DropoutSite::kInput ? plan_.model.input_dropout_rate : plan_.model.dropout_rate;
}

// Applies dropout to a tensor or to its gradient.
void Transformer::apply_dropout(DropoutSite site, size_t layer, const TokenRows& rows,
                                const Tensor& x, Share columns, int64_t width) {
  const double rate = dropout_rate(site);
  if (rate == 0) return;
  constexpr uint32_t kSites = 4;
  ops_.dropout({.rate = rate,
                .key = dropout_->seed ^ fnv1a("dropout"),  // initial weights use the seed itself
                .location = static_cast<uint32_t>(layer) * kSites + static_cast<uint32_t>(site),
                .elements = {dropout_->first_sample, rows, columns.first, width}},
               x);
}

void Transformer::apply_dropout_to_own_rows(DropoutSite site, size_t layer, const Tensor& x) {
  apply_dropout(site, layer, own_token_rows(), x);
}

void Transformer::apply_dropout_to_activation(size_t layer, const Tensor& x) {
  apply_dropout(DropoutSite::kActivation, layer, shape_.token_rows(), x, plan_.mlp_columns(),
                plan_.model.mlp_dim);
}

// Returns the gradient of what attention or the MLP adds to the residual stream: the gradient of
// the stream or, with dropout, a masked copy in delta.
Tensor Transformer::added_gradient(DropoutSite site, size_t layer) {
  const Tensor d_stream = stream(plan_.d_stream);
  if (dropout_rate(site) == 0) return d_stream;
  const Tensor delta = stream(plan_.delta);
  ops_.copy(d_stream, delta);
  apply_dropout_to_own_rows(site, layer, delta);
  return delta;
}

void Transformer::offload(size_t layer) {
  for (const OffloadedTensor& tensor : buffers_of(layer).offloaded) {
    ops_.copy(Tensor::of(tensor.dtype, arena_.buffer(tensor.device), {tensor.elements}),
              Tensor::of(tensor.dtype, arena_.buffer(tensor.host), {tensor.elements}));
  }
}

void Transformer::fetch(size_t layer, bool of_attention) {
  for (const OffloadedTensor& tensor : buffers_of(layer).offloaded) {
    if (tensor.belongs_to_attention != of_attention) continue;
    ops_.copy(Tensor::of(tensor.dtype, arena_.buffer(tensor.host), {tensor.elements}),
              Tensor::of(tensor.dtype, arena_.buffer(tensor.device), {tensor.elements}));
  }
}

// Fetches or recomputes the tensors that the backward pass reads and that the layer has not saved
// on the device. The output of the MLP's last GEMM is not needed. The calls and values are those of
// the forward pass, so the results have the same bits.
void Transformer::recompute_layer(size_t layer) {
  const OpRange range(ops_, "recompute");
  const LayerPlacements& placements = plan_.placements;
  const bool again = placements.rest == Placement::kRemat;
  fetch(layer, /*of_attention=*/true);
  if (again) make_normed1(layer);
  if (placements.qkv == Placement::kRemat) make_qkv(layer);
  if (placements.context == Placement::kRemat) make_context(layer);
  fetch(layer, /*of_attention=*/false);
  if (!plan_.model.parallel_block) {  // a parallel block's backward pass reads neither of these
    if (placements.middle == Placement::kRemat) {
      make_middle(layer);
    } else if (again) {
      make_normed2(layer);
    }
  }
  if (placements.gate_up == Placement::kRemat) {
    if (has_experts(layer)) make_routing(layer);
    make_gate_up(layer, again);
  } else if (again) {
    make_act(layer);
  }
}

}  // namespace muster::trainer
