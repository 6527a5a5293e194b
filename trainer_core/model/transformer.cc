// The forward pass. transformer_backward.cc mirrors it.
#include "trainer_core/model/transformer.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "trainer_core/model/transformer_params.h"

namespace muster::trainer {
namespace {

// RoPE's angle per position of pair i: timescale^(-2i/h), with long wavelengths stretched as Llama 3.1 does it.
double rope_frequency(const ModelConfig& model, int32_t i) {
  const double plain = std::pow(model.rope_max_timescale, -2.0 * i / model.head_dim);
  const RopeScaling& scaling = model.rope_scaling;
  if (scaling.factor == 1) return plain;
  const double wavelength = 2 * std::numbers::pi / plain;
  const double turns = scaling.original_max_position / wavelength;  // within the original context
  if (turns > scaling.high_frequency_factor) return plain;
  if (turns < scaling.low_frequency_factor) return plain / scaling.factor;
  const double smooth = (turns - scaling.low_frequency_factor) /
                        (scaling.high_frequency_factor - scaling.low_frequency_factor);
  return (1 - smooth) * plain / scaling.factor + smooth * plain;
}

// cos and sin of position * frequency, in fp64 before rounding: (S, h/2) each.
void rope_tables(const ModelConfig& model, int32_t seq_len, Ops& ops, const Tensor& cos,
                 const Tensor& sin) {
  const int32_t half = model.head_dim / 2;
  std::vector<float> cosines, sines;
  cosines.reserve(static_cast<size_t>(cos.elements()));
  sines.reserve(static_cast<size_t>(sin.elements()));
  for (int32_t position = 0; position < seq_len; ++position) {
    for (int32_t i = 0; i < half; ++i) {
      const double angle = position * rope_frequency(model, i);
      cosines.push_back(static_cast<float>(std::cos(angle)));
      sines.push_back(static_cast<float>(std::sin(angle)));
    }
  }
  ops.upload(cosines.data(), cos);
  ops.upload(sines.data(), sin);
}

}  // namespace

Transformer::Transformer(const TransformerPlan& plan, Arena& arena, Ops& ops)
    : plan_(plan),
      arena_(arena),
      ops_(ops),
      shape_(plan.attention_shape()),
      norm_(plan.norm_shape()),
      rows_(shape_.rows()),
      width_(plan.model.emb_dim),
      parameters_(parameter_count(plan.params)),
      weights_(std::make_unique<Weights>(plan, arena.f32(plan.param_block))) {
  MUSTER_CHECK(arena.bytes() == plan.memory.total_bytes()) << "the arena is another plan's";
  if (plan.training) grads_ = std::make_unique<Weights>(plan, arena.f32(plan.grad_block));
  if (!plan.model.has_rope()) return;
  const int64_t half = shape_.head_dim / 2;
  rope_tables(plan.model, plan.positions(), ops, view(plan.rope_cos, {plan.positions(), half}),
              view(plan.rope_sin, {plan.positions(), half}));
}

Transformer::~Transformer() = default;

std::span<float> Transformer::params() {
  return {arena_.f32(plan_.param_block), static_cast<size_t>(parameters_)};
}
std::span<float> Transformer::grads() {
  return grad_block().first(static_cast<size_t>(parameters_));
}
std::span<float> Transformer::grad_block() {
  MUSTER_CHECK(plan_.training) << "a plan without gradients";
  return {arena_.f32(plan_.grad_block), static_cast<size_t>(parameters_ + kGradTailElements)};
}

Tensor Transformer::view(BufferId id, std::initializer_list<int64_t> dims) const {
  return Tensor::f32(arena_.f32(id), dims);
}

Tensor Transformer::stats(BufferId id) const { return view(id, {norm_.stats(rows_)}); }

Tensor Transformer::gate_up(const LayerBuffers& buffers) const {
  return view(buffers.gate_up, {rows_, plan_.activation().input_width(plan_.model.mlp_dim)});
}

double Transformer::embedding_scale() const {
  return plan_.model.scale_embeddings ? std::sqrt(static_cast<double>(width_)) : 1;
}

void Transformer::scale_logits(const Tensor& hidden) {
  if (plan_.model.logits_scale != 1) ops_.scale(plan_.model.logits_scale, hidden);
}

void Transformer::rope(RopeDirection direction, const Tensor& qkv) {
  if (!plan_.model.has_rope()) return;
  const RopePairs pairs = plan_.model.position_type == PositionType::kRope ? RopePairs::kHalves
                                                                           : RopePairs::kNeighbours;
  ops_.rope(shape_, position_rows(plan_.rope_cos), position_rows(plan_.rope_sin), pairs, direction,
            qkv);
}

// This call's rows of a table of RoPE.
Tensor Transformer::position_rows(BufferId table) const {
  const int64_t half = shape_.head_dim / 2;
  return Tensor::f32(arena_.f32(table) + cached_ * half, {shape_.seq_len, half});
}

void Transformer::project(const Tensor& x, const Tensor& weight, const Tensor& bias,
                          const Tensor& y) {
  ops_.matmul(x, Transpose::kNo, weight, Transpose::kYes, y, Accumulate::kNo);
  if (exists(bias)) ops_.add_bias(bias, y);
}

Workspace Transformer::workspace() const {
  return {arena_.f32(plan_.workspace), plan_.workspace_elements};
}

void Transformer::upload(const Batch& batch) {
  const auto rows = static_cast<size_t>(rows_);
  MUSTER_CHECK(batch.tokens.size() == rows && batch.targets.size() == rows &&
               batch.weights.size() == rows)
      << "a batch of " << batch.tokens.size() << " tokens for a plan of " << rows;
  ops_.upload(batch.tokens.data(), view_i32(arena_, plan_.tokens, rows_));
  ops_.upload(batch.targets.data(), view_i32(arena_, plan_.targets, rows_));
  ops_.upload(batch.weights.data(), view(plan_.weights, {rows_}));
}

LossSum Transformer::forward(const Batch& batch) {
  upload(batch);
  forward_layers();
  return head_loss(false);
}

LossSum Transformer::forward_backward(const Batch& batch) {
  MUSTER_CHECK(plan_.training) << "a plan without gradients";
  upload(batch);
  forward_layers();
  const LossSum loss = head_loss(true);
  backward_layers();
  return loss;
}

// tokens -> final_normed. Each sublayer's norm is fused with the residual addition before it, so
// layer i leaves the normed input of layer i + 1 behind.
void Transformer::forward_layers() {
  const LayerBuffers& first = plan_.layers.front();
  const Tensor stream = view(first.input, {rows_, width_});
  ops_.embedding(view_i32(arena_, plan_.tokens, rows_), weights_->embedding, embedding_scale(),
                 stream);
  if (const Tensor& table = weights_->positions; exists(table)) {
    const Tensor rows =
        Tensor::f32(table.f32() + cached_ * width_, {table.dim(0) - cached_, width_});
    ops_.add_positions(rows, shape_.seq_len, stream);
  }
  ops_.norm(norm_, stream, weights_->layers.front().norm1, view(first.normed1, {rows_, width_}),
            stats(first.stats1));
  const size_t layers = plan_.layers.size();
  for (size_t i = 0; i < layers; ++i) {
    forward_attention(i);
    forward_mlp(i);
    const bool last = i + 1 == layers;
    const LayerBuffers& next = plan_.layers[last ? i : i + 1];
    ops_.add_norm(norm_, view(plan_.layers[i].middle, {rows_, width_}),
                  view(plan_.delta, {rows_, width_}),
                  last ? weights_->final_norm : weights_->layers[i + 1].norm1,
                  view(last ? plan_.output : next.input, {rows_, width_}),
                  view(last ? plan_.final_normed : next.normed1, {rows_, width_}),
                  stats(last ? plan_.final_stats : next.stats1));
  }
  scale_logits(view(plan_.final_normed, {rows_, width_}));
}

void Transformer::attend(size_t layer, const Tensor& qkv, const Tensor& context) {
  if (plan_.cache_capacity == 0) {
    const Tensor lse = view(plan_.layers[layer].lse, {shape_.batch, shape_.heads, shape_.seq_len});
    ops_.attention(shape_, qkv, context, lse, workspace());
    return;
  }
  const auto cache = [&](BufferId id) {
    return view(id, {shape_.batch, shape_.kv_heads, plan_.cache_capacity, shape_.head_dim});
  };
  const CacheBuffers& buffers = plan_.caches[layer];
  ops_.attention_cached(shape_, cached_, qkv, {cache(buffers.keys), cache(buffers.values)}, context,
                        workspace());
}

// normed1 -> middle, normed2.
void Transformer::forward_attention(size_t layer) {
  const LayerBuffers& buffers = plan_.layers[layer];
  const LayerWeights& weights = weights_->layers[layer];
  const Tensor qkv = view(buffers.qkv, {rows_, shape_.qkv_width()});
  const Tensor context = view(buffers.context, {rows_, shape_.out_width()});
  const Tensor delta = view(plan_.delta, {rows_, width_});
  project(view(buffers.normed1, {rows_, width_}), weights.qkv, weights.qkv_bias, qkv);
  rope(RopeDirection::kForward, qkv);
  attend(layer, qkv, context);
  project(context, weights.out, weights.out_bias, delta);
  ops_.add_norm(norm_, view(buffers.input, {rows_, width_}), delta, weights.norm2,
                view(buffers.middle, {rows_, width_}), view(buffers.normed2, {rows_, width_}),
                stats(buffers.stats2));
}

// normed2 -> act.
void Transformer::forward_mlp_inner(size_t layer) {
  const LayerBuffers& buffers = plan_.layers[layer];
  const LayerWeights& weights = weights_->layers[layer];
  project(view(buffers.normed2, {rows_, width_}), weights.gate_up, weights.gate_up_bias,
          gate_up(buffers));
  ops_.activate(plan_.activation(), gate_up(buffers),
                view(buffers.act, {rows_, plan_.model.mlp_dim}));
}

// normed2 -> delta.
void Transformer::forward_mlp(size_t layer) {
  const LayerBuffers& buffers = plan_.layers[layer];
  const LayerWeights& weights = weights_->layers[layer];
  forward_mlp_inner(layer);
  project(view(buffers.act, {rows_, plan_.model.mlp_dim}), weights.down, weights.down_bias,
          view(plan_.delta, {rows_, width_}));
}

// Head and loss, head_rows rows at a time; with `backward` also the head's gradient and, in delta,
// the gradient of final_normed.
LossSum Transformer::head_loss(bool backward) {
  const int64_t d = width_, vocab = plan_.model.vocab_size;
  const Tensor& weight = weights_->head;
  for (int64_t first = 0; first < rows_; first += plan_.head_rows) {
    const int64_t count = std::min(plan_.head_rows, rows_ - first);
    const Tensor normed = Tensor::f32(arena_.f32(plan_.final_normed) + first * d, {count, d});
    const Tensor logits = view(plan_.logits, {count, vocab});
    const Tensor targets =
        Tensor::i32(view_i32(arena_, plan_.targets, rows_).i32() + first, {count});
    const Tensor weights = Tensor::f32(arena_.f32(plan_.weights) + first, {count});
    const Tensor losses = Tensor::f32(arena_.f32(plan_.losses) + first, {count});
    ops_.matmul(normed, Transpose::kNo, weight, Transpose::kYes, logits, Accumulate::kNo);
    if (!backward) {
      ops_.cross_entropy(plan_.loss_shape(), logits, targets, weights, losses);
      continue;
    }
    ops_.cross_entropy_backward(plan_.loss_shape(), logits, targets, weights, losses);
    ops_.matmul(logits, Transpose::kYes, normed, Transpose::kNo, grads_->head,
                first == 0 ? Accumulate::kNo : Accumulate::kYes);
    ops_.matmul(logits, Transpose::kNo, weight, Transpose::kNo,
                Tensor::f32(arena_.f32(plan_.delta) + first * d, {count, d}), Accumulate::kNo);
  }
  if (backward) scale_logits(view(plan_.delta, {rows_, d}));
  return {.loss = ops_.sum(view(plan_.losses, {rows_})),
          .weight = ops_.sum(view(plan_.weights, {rows_}))};
}

void Transformer::download_logits(const Tensor& hidden, float* out) {
  const Tensor logits = view(plan_.logits, {hidden.dim(0), plan_.model.vocab_size});
  ops_.matmul(hidden, Transpose::kNo, weights_->head, Transpose::kYes, logits, Accumulate::kNo);
  if (plan_.model.final_logits_soft_cap > 0)
    ops_.soft_cap(plan_.model.final_logits_soft_cap, logits);
  ops_.download(logits, out);
}

void Transformer::all_logits(std::span<const int32_t> tokens, float* out) {
  MUSTER_CHECK(tokens.size() == static_cast<size_t>(rows_)) << tokens.size() << " tokens";
  ops_.upload(tokens.data(), view_i32(arena_, plan_.tokens, rows_));
  forward_layers();
  float* normed = arena_.f32(plan_.final_normed);
  for (int64_t first = 0; first < rows_; first += plan_.head_rows) {
    const int64_t count = std::min(plan_.head_rows, rows_ - first);
    download_logits(Tensor::f32(normed + first * width_, {count, width_}),
                    out + first * plan_.model.vocab_size);
  }
}

void Transformer::extend(std::span<const int32_t> tokens, float* out) {
  const auto batch = static_cast<size_t>(plan_.batch);
  shape_.seq_len = static_cast<int64_t>(tokens.size() / batch);
  rows_ = shape_.rows();
  MUSTER_CHECK(tokens.size() % batch == 0 && rows_ >= 1 && shape_.seq_len <= plan_.seq_len &&
               cached_ + shape_.seq_len <= plan_.cache_capacity)
      << tokens.size() << " tokens behind " << cached_ << " of " << plan_.cache_capacity;
  ops_.upload(tokens.data(), view_i32(arena_, plan_.tokens, rows_));
  forward_layers();
  cached_ += shape_.seq_len;
  float* normed = arena_.f32(plan_.final_normed);
  for (int64_t b = 0; b < plan_.batch; ++b) {
    // Gathers into delta, whose rows are free after the last layer.
    ops_.copy(Tensor::f32(normed + ((b + 1) * shape_.seq_len - 1) * width_, {width_}),
              Tensor::f32(arena_.f32(plan_.delta) + b * width_, {width_}));
  }
  download_logits(view(plan_.delta, {plan_.batch, width_}), out);
}

}  // namespace muster::trainer
