// The forward pass. transformer_backward.cc mirrors it.
#include "trainer_core/model/transformer.h"

#include <algorithm>
#include <cmath>

#include "trainer_core/model/transformer_params.h"

namespace muster::trainer {
namespace {

// cos and sin of position * timescale^(-2i/h), in fp64 before rounding: (S, h/2) each.
void rope_tables(const ModelConfig& model, int32_t seq_len, Ops& ops, const Tensor& cos,
                 const Tensor& sin) {
  const int32_t half = model.head_dim / 2;
  std::vector<float> cosines, sines;
  cosines.reserve(static_cast<size_t>(cos.elements()));
  sines.reserve(static_cast<size_t>(sin.elements()));
  for (int32_t position = 0; position < seq_len; ++position) {
    for (int32_t i = 0; i < half; ++i) {
      const double angle = position * std::pow(model.rope_max_timescale, -2.0 * i / model.head_dim);
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
      rows_(shape_.rows()),
      parameters_(parameter_count(plan.params)),
      param_block_(arena.f32(plan.param_block)) {
  MUSTER_CHECK(arena.bytes() == plan.memory.total_bytes()) << "the arena is another plan's";
  if (plan.training) grad_block_ = arena.f32(plan.grad_block);
  const int64_t half = shape_.head_dim / 2;
  rope_tables(plan.model, plan.seq_len, ops, view(plan.rope_cos, {shape_.seq_len, half}),
              view(plan.rope_sin, {shape_.seq_len, half}));
}

std::span<float> Transformer::params() { return {param_block_, static_cast<size_t>(parameters_)}; }
std::span<float> Transformer::grads() {
  MUSTER_CHECK(plan_.training) << "a plan without gradients";
  return {grad_block_, static_cast<size_t>(parameters_)};
}
std::span<float> Transformer::grad_block() {
  MUSTER_CHECK(plan_.training) << "a plan without gradients";
  return {grad_block_, static_cast<size_t>(parameters_ + kGradTailElements)};
}

Tensor Transformer::view(BufferId id, std::initializer_list<int64_t> dims) const {
  return Tensor::f32(arena_.f32(id), dims);
}

Tensor Transformer::param(float* block, size_t index, int stacked) const {
  const ParamSpec& first = plan_.params[index];
  if (first.shape.size() == 1) return Tensor::f32(block + first.offset, {first.shape[0]});
  int64_t rows = 0;
  for (int i = 0; i < stacked; ++i) rows += plan_.params[index + static_cast<size_t>(i)].shape[0];
  return Tensor::f32(block + first.offset, {rows, first.shape[1]});
}

Transformer::LayerParams Transformer::layer_params(float* block, int layer) const {
  // The table's order: the embedding, then nine rows per layer.
  constexpr size_t kRowsPerLayer = 9;
  const size_t first = 1 + kRowsPerLayer * static_cast<size_t>(layer);
  return {.norm1 = param(block, first),
          .qkv = param(block, first + 1, 3),
          .out = param(block, first + 4),
          .norm2 = param(block, first + 5),
          .gate_up = param(block, first + 6, 2),
          .down = param(block, first + 8)};
}

Tensor Transformer::final_gain(float* block) const {
  return param(block, plan_.params.size() - (plan_.model.logits_via_embedding ? 1 : 2));
}

Tensor Transformer::head(float* block) const {
  return param(block, plan_.model.logits_via_embedding ? 0 : plan_.params.size() - 1);
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
  const int64_t d = plan_.model.emb_dim;
  const LayerBuffers& first = plan_.layers.front();
  const Tensor stream = view(first.input, {rows_, d});
  ops_.embedding(view_i32(arena_, plan_.tokens, rows_), param(param_block_, 0), stream);
  ops_.rms_norm(stream, layer_params(param_block_, 0).norm1, plan_.model.norm_epsilon,
                view(first.normed1, {rows_, d}), view(first.rstd1, {rows_}));
  const int layers = plan_.model.num_layers;
  for (int i = 0; i < layers; ++i) {
    forward_attention(i);
    forward_mlp(i);
    const bool last = i + 1 == layers;
    const LayerBuffers& next = plan_.layers[static_cast<size_t>(last ? i : i + 1)];
    ops_.add_rms_norm(view(plan_.layers[static_cast<size_t>(i)].middle, {rows_, d}),
                      view(plan_.delta, {rows_, d}),
                      last ? final_gain(param_block_) : layer_params(param_block_, i + 1).norm1,
                      plan_.model.norm_epsilon, view(last ? plan_.output : next.input, {rows_, d}),
                      view(last ? plan_.final_normed : next.normed1, {rows_, d}),
                      view(last ? plan_.final_rstd : next.rstd1, {rows_}));
  }
}

// normed1 -> middle, normed2.
void Transformer::forward_attention(int layer) {
  const LayerBuffers& buffers = plan_.layers[static_cast<size_t>(layer)];
  const LayerParams params = layer_params(param_block_, layer);
  const int64_t d = plan_.model.emb_dim, half = shape_.head_dim / 2;
  const Tensor qkv = view(buffers.qkv, {rows_, shape_.qkv_width()});
  const Tensor context = view(buffers.context, {rows_, shape_.out_width()});
  const Tensor delta = view(plan_.delta, {rows_, d});
  ops_.matmul(view(buffers.normed1, {rows_, d}), Transpose::kNo, params.qkv, Transpose::kYes, qkv,
              Accumulate::kNo);
  ops_.rope(shape_, view(plan_.rope_cos, {shape_.seq_len, half}),
            view(plan_.rope_sin, {shape_.seq_len, half}), RopeDirection::kForward, qkv);
  ops_.attention(shape_, qkv, context,
                 view(buffers.lse, {shape_.batch, shape_.heads, shape_.seq_len}), workspace());
  ops_.matmul(context, Transpose::kNo, params.out, Transpose::kYes, delta, Accumulate::kNo);
  ops_.add_rms_norm(view(buffers.input, {rows_, d}), delta, params.norm2, plan_.model.norm_epsilon,
                    view(buffers.middle, {rows_, d}), view(buffers.normed2, {rows_, d}),
                    view(buffers.rstd2, {rows_}));
}

// normed2 -> delta.
void Transformer::forward_mlp(int layer) {
  const LayerBuffers& buffers = plan_.layers[static_cast<size_t>(layer)];
  const LayerParams params = layer_params(param_block_, layer);
  const int64_t d = plan_.model.emb_dim, m = plan_.model.mlp_dim;
  const Tensor gate_up = view(buffers.gate_up, {rows_, 2 * m});
  const Tensor act = view(buffers.act, {rows_, m});
  ops_.matmul(view(buffers.normed2, {rows_, d}), Transpose::kNo, params.gate_up, Transpose::kYes,
              gate_up, Accumulate::kNo);
  ops_.swiglu(gate_up, act);
  ops_.matmul(act, Transpose::kNo, params.down, Transpose::kYes, view(plan_.delta, {rows_, d}),
              Accumulate::kNo);
}

// Head and loss, head_rows rows at a time; with `backward` also the head's gradient and, in delta,
// the gradient of final_normed.
LossSum Transformer::head_loss(bool backward) {
  const int64_t d = plan_.model.emb_dim, vocab = plan_.model.vocab_size;
  const Tensor weight = head(param_block_);
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
      ops_.cross_entropy(logits, targets, weights, losses);
      continue;
    }
    ops_.cross_entropy_backward(logits, targets, weights, losses);
    ops_.matmul(logits, Transpose::kYes, normed, Transpose::kNo, head(grad_block_),
                first == 0 ? Accumulate::kNo : Accumulate::kYes);
    ops_.matmul(logits, Transpose::kNo, weight, Transpose::kNo,
                Tensor::f32(arena_.f32(plan_.delta) + first * d, {count, d}), Accumulate::kNo);
  }
  return {.loss = ops_.sum(view(plan_.losses, {rows_})),
          .weight = ops_.sum(view(plan_.weights, {rows_}))};
}

void Transformer::logits(std::span<const int32_t> tokens, int32_t position, float* out) {
  MUSTER_CHECK(tokens.size() == static_cast<size_t>(rows_) && position >= 0 &&
               position < plan_.seq_len)
      << tokens.size() << " tokens, position " << position;
  ops_.upload(tokens.data(), view_i32(arena_, plan_.tokens, rows_));
  forward_layers();
  const int64_t d = plan_.model.emb_dim;
  float* normed = arena_.f32(plan_.final_normed);
  for (int64_t b = 0; b < plan_.batch; ++b) {
    // Gathers into delta, whose rows are free after the last layer.
    ops_.copy(Tensor::f32(normed + (b * plan_.seq_len + position) * d, {d}),
              Tensor::f32(arena_.f32(plan_.delta) + b * d, {d}));
  }
  const Tensor result = view(plan_.logits, {plan_.batch, plan_.model.vocab_size});
  ops_.matmul(view(plan_.delta, {plan_.batch, d}), Transpose::kNo, head(param_block_),
              Transpose::kYes, result, Accumulate::kNo);
  ops_.download(result, out);
}

}  // namespace muster::trainer
