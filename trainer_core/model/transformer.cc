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
      weights_(std::make_unique<Weights>(plan, arena.buffer(plan.param_block))) {
  MUSTER_CHECK(arena.bytes() == plan.memory.total_bytes()) << "the arena is another plan's";
  if (plan.packed) shape_.starts = view_i32(arena, plan.starts, rows_);
  if (plan.training) grads_ = std::make_unique<Weights>(plan, arena.f32(plan.grad_block));
  if (plan.cache_capacity == 0) reset_scaling();  // a decoder's has been loaded
  if (!plan.model.has_rope()) return;
  const int64_t half = shape_.head_dim / 2;
  rope_tables(plan.model, plan.positions(), ops, view(plan.rope_cos, {plan.positions(), half}),
              view(plan.rope_sin, {plan.positions(), half}));
}

Transformer::~Transformer() = default;

std::span<float> Transformer::params() {
  MUSTER_CHECK(!plan_.rounds_params()) << "a plan of rounded parameters";
  return {arena_.f32(plan_.param_block), static_cast<size_t>(parameters_)};
}
std::span<float> Transformer::state() {
  MUSTER_CHECK(!plan_.rounds_params()) << "a plan of rounded parameters";
  return {arena_.f32(plan_.param_block),
          static_cast<size_t>(parameters_ + scaling_elements(plan_.model))};
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

Tensor Transformer::activation(BufferId id, std::initializer_list<int64_t> dims) const {
  return Tensor::of(plan_.dtype, arena_.buffer(id), dims);
}

Tensor Transformer::stream_rows(BufferId id, int64_t first, int64_t count) const {
  const int64_t skipped = first * width_ * static_cast<int64_t>(dtype_bytes(plan_.dtype));
  return Tensor::of(plan_.dtype, static_cast<char*>(arena_.buffer(id)) + skipped, {count, width_});
}

Tensor Transformer::stats(BufferId id) const { return view(id, {norm_.stats(rows_)}); }

Tensor Transformer::gate_up(const LayerBuffers& buffers) const {
  return activation(buffers.gate_up, {rows_, plan_.activation().input_width(plan_.model.mlp_dim)});
}

double Transformer::embedding_scale() const {
  return plan_.model.scale_embeddings ? std::sqrt(static_cast<double>(width_)) : 1;
}

void Transformer::rope(RopeDirection direction, const Tensor& qkv) {
  if (!plan_.model.has_rope()) return;
  const RopePairs pairs = plan_.model.position_type == PositionType::kRope ? RopePairs::kHalves
                                                                           : RopePairs::kNeighbours;
  ops_.rope(shape_, position_rows(plan_.rope_cos), position_rows(plan_.rope_sin), pairs, direction,
            qkv);
}

Tensor Transformer::position_rows(BufferId table) const {
  const int64_t half = shape_.head_dim / 2;
  return Tensor::f32(arena_.f32(table) + cached_ * half, {shape_.seq_len, half});
}

void Transformer::project(const Dense& dense, const Tensor& x, const Tensor& weight,
                          const Tensor& bias, const Tensor& y) {
  if (is_quantized(dense)) {
    quantized_project(*dense, x, weight, y);
  } else {
    ops_.matmul(x, Transpose::kNo, weight, Transpose::kYes, y, Accumulate::kNo);
  }
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
  MUSTER_CHECK(batch.starts.size() == (plan_.packed ? rows : 0))
      << "a batch of " << batch.starts.size() << " starts for a plan of " << rows << " tokens";
  if (plan_.packed) ops_.upload(batch.starts.data(), shape_.starts);
}

LossSum Transformer::forward(const Batch& batch) {
  MUSTER_CHECK(plan_.cache_capacity == 0) << "a plan for decoding";
  upload(batch);
  forward_layers();
  return head_loss();
}

LossSum Transformer::forward_backward(const Batch& batch, Accumulate accumulate) {
  MUSTER_CHECK(plan_.training) << "a plan without gradients";
  upload(batch);
  dropout_ = batch.dropout;
  if (accumulate == Accumulate::kNo && !amaxes().empty())
    ops_.fill(view(plan_.quantized.amax, {scaling_scales(plan_.model)}), 0);
  forward_layers();
  const LossSum loss = head_loss_backward(accumulate);
  backward_layers(accumulate);
  dropout_.reset();
  return loss;
}

// tokens -> final_normed. Each sublayer's norm is fused with the residual addition before it, so
// layer i leaves the normed input of layer i + 1 behind.
void Transformer::forward_layers() {
  const Tensor stream = activation(plan_.layers.front().input, {rows_, width_});
  ops_.embedding(view_i32(arena_, plan_.tokens, rows_), weights_->embedding, {}, embedding_scale(),
                 stream);
  if (const Tensor& table = weights_->positions; exists(table)) {
    const Tensor rows =
        Tensor::f32(table.f32() + cached_ * width_, {table.dim(0) - cached_, width_});
    ops_.add_positions(rows, shape_.token_rows(), shape_.starts, stream);
  }
  show("embeddings", stream);
  drop(DropoutSite::kInput, 0, stream);
  make_normed1(0);
  const size_t layers = plan_.layers.size();
  for (size_t i = 0; i < layers; ++i) {
    make_qkv(i);
    make_context(i);
    make_middle(i);
    show_attention(i);
    make_gate_up(i);
    make_act(i);
    make_delta(i);
    show_mlp(i);
    stow(i);
    const bool last = i + 1 == layers;
    const LayerBuffers& next = plan_.layers[last ? i : i + 1];
    ops_.add_norm(norm_, activation(plan_.layers[i].middle, {rows_, width_}),
                  activation(plan_.delta, {rows_, width_}),
                  last ? weights_->final_norm : weights_->layers[i + 1].norm1,
                  activation(last ? plan_.output : next.input, {rows_, width_}),
                  activation(last ? plan_.final_normed : next.normed1, {rows_, width_}),
                  stats(last ? plan_.final_stats : next.stats1));
  }
  scale_logits(activation(plan_.final_normed, {rows_, width_}));
  show("final_normed", activation(plan_.final_normed, {rows_, width_}));
}

}  // namespace muster::trainer
