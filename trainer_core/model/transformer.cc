// The forward pass. transformer_backward.cc mirrors it.
#include "trainer_core/model/transformer.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "trainer_core/base/tensor_views.h"
#include "trainer_core/model/exchange_plan.h"
#include "trainer_core/model/transformer_params.h"

namespace muster::trainer {
namespace {

// Returns RoPE's angle per position of pair i: timescale^(-2i/h), with the scaling of long
// wavelengths of Llama 3.1.
double rope_frequency(const ModelConfig& model, int32_t i) {
  const double plain = std::pow(model.rope_max_timescale, -2.0 * i / model.head_dim);
  const RopeScaling& scaling = model.rope_scaling;
  if (scaling.factor == 1) return plain;
  const double wavelength = 2 * std::numbers::pi / plain;
  // Rotations within the original context.
  const double rotations = scaling.original_max_position / wavelength;
  if (rotations > scaling.high_frequency_factor) return plain;
  if (rotations < scaling.low_frequency_factor) return plain / scaling.factor;
  const double smooth = (rotations - scaling.low_frequency_factor) /
                        (scaling.high_frequency_factor - scaling.low_frequency_factor);
  return (1 - smooth) * plain / scaling.factor + smooth * plain;
}

// Writes the cosine and sine of position * frequency, (S, h/2) each; they are computed in fp64 and
// then rounded.
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

Transformer::Transformer(const TransformerPlan& plan, Arena& arena, Ops& ops,
                         ParameterBlocks* blocks, ModelExchange* exchange)
    : plan_(plan),
      arena_(arena),
      ops_(ops),
      blocks_(blocks != nullptr ? *blocks : whole_),
      no_exchange_(ops),
      exchange_(exchange != nullptr ? *exchange : no_exchange_, plan.part()),
      shape_(plan.attention_shape()),
      norm_(plan.norm_shape()),
      rows_(plan.token_count()),
      own_rows_(plan.own_rows()),
      width_(plan.model.emb_dim),
      run_(plan.run()),
      trained_(std::make_unique<Weights>(plan, arena, Weights::What::kWeights)),
      weights_(trained_.get()) {
  MUSTER_CHECK(arena.bytes() == plan.memory.total_bytes()) << "the arena is another plan's";
  MUSTER_CHECK(blocks != nullptr || !plan.sharding.copies())
      << "a plan of shards without ParameterBlocks";
  MUSTER_CHECK(exchange != nullptr || !plan.part().exchanges())
      << "a part of the model without a ModelExchange";
  if (plan.packed) shape_.starts = view_i32(arena, plan.starts, rows_);
  if (plan.sharding.has_reference)
    reference_ = std::make_unique<Weights>(plan, arena, Weights::What::kReference);
  if (plan.training) grads_ = std::make_unique<Weights>(plan, arena, Weights::What::kGradients);
  if (!plan.decodes()) reset_scaling();  // a decoder has loaded its scaling state
  if (plan.part().splits_experts()) {
    const std::vector<int32_t> none(static_cast<size_t>(plan.model.experts.count));
    expert_counts_.resize(plan.layers.size(), {none, none});
  }
  if (plan.routed_order.exists()) {
    ops.upload(routed_order(plan).data(), view_i32(arena, plan.routed_order, plan.routed_tokens()));
  }
  if (!plan.model.has_rope()) return;
  const int64_t half = shape_.head_dim / 2;
  rope_tables(plan.model, plan.positions(), ops, view(plan.rope_cos, {plan.positions(), half}),
              view(plan.rope_sin, {plan.positions(), half}));
}

Transformer::~Transformer() = default;

void Transformer::read_reference(bool reference) {
  MUSTER_CHECK(!reference || reference_ != nullptr) << "a plan without a reference model";
  weights_ = reference ? reference_.get() : trained_.get();
}

Tensor Transformer::parameters() {
  MUSTER_CHECK(!plan_.rounds_params()) << "a plan of rounded parameters";
  return Tensor::of(plan_.sharding.layout.stored(), arena_.buffer(plan_.param_block),
                    {plan_.stored_parameters()});
}
Tensor Transformer::parameters(const ShardPiece& piece) {
  return tensor_at(parameters(), piece.offset, {piece.count});
}
Tensor Transformer::frozen_parameters() {
  const ShardLayout& frozen = plan_.sharding.frozen;
  return Tensor::of(frozen.stored(), arena_.buffer(plan_.frozen_block), {frozen.elements()});
}
std::span<float> Transformer::params() {
  const Tensor all = parameters();
  return {all.f32(), static_cast<size_t>(all.elements())};
}
std::span<float> Transformer::state() {
  MUSTER_CHECK(!plan_.rounds_params()) << "a plan of rounded parameters";
  return {arena_.f32(plan_.param_block),
          static_cast<size_t>(plan_.stored_floats() + scaling_elements(plan_.model))};
}
std::span<float> Transformer::grads() {
  MUSTER_CHECK(plan_.training) << "a plan without gradients";
  return {arena_.f32(plan_.grad_block), static_cast<size_t>(plan_.stored_parameters())};
}

Tensor Transformer::view(BufferId id, std::initializer_list<int64_t> dims) const {
  return Tensor::f32(arena_.f32(id), dims);
}

Tensor Transformer::activation(BufferId id, std::initializer_list<int64_t> dims) const {
  return Tensor::of(plan_.dtype, arena_.buffer(id), dims);
}

Tensor Transformer::stream(BufferId id) const { return activation(id, {own_rows_, width_}); }

Tensor Transformer::own_rows(const Tensor& all) const {
  return rows_at(all, plan_.first_own_row(), own_rows_);
}

Tensor Transformer::stats(BufferId id) const { return view(id, {norm_.stats(own_rows_)}); }

Tensor Transformer::gate_up(const LayerBuffers& buffers) const {
  return activation(buffers.gate_up,
                    {rows_, plan_.activation().input_width(plan_.mlp_columns().count)});
}

VocabularySlice Transformer::vocabulary_slice() const {
  if (!splits_rows()) return {};
  return {plan_.vocabulary().first, plan_.model.vocab_size};
}

TokenRows Transformer::own_token_rows() const {
  return {shape_.row_positions(), plan_.first_own_row()};
}

Tensor Transformer::own_starts() const {
  if (!exists(shape_.starts)) return {};
  return tensor_at(shape_.starts, plan_.first_own_row(), {own_rows_});
}

double Transformer::embedding_scale() const {
  return plan_.model.scale_embeddings ? std::sqrt(static_cast<double>(width_)) : 1;
}

void Transformer::rope(RopeDirection direction, const Tensor& qkv) {
  if (!plan_.model.has_rope()) return;
  const RopePairs pairs = plan_.model.position_type == PositionType::kRope
                              ? RopePairs::kHalves
                              : RopePairs::kInterleaved;
  const bool paged = plan_.decodes();
  const int64_t positions = shape_.row_positions().end(), half = shape_.head_dim / 2;
  ops_.rope(shape_, view(paged ? plan_.paged.rope_cos : plan_.rope_cos, {positions, half}),
            view(paged ? plan_.paged.rope_sin : plan_.rope_sin, {positions, half}), pairs,
            direction, qkv);
}

void Transformer::project(const Dense& dense, const Tensor& x, const Tensor& weight,
                          const Epilogue& epilogue, const Tensor& y) {
  const bool quantizes = is_quantized(dense), adapts = is_adapted(dense);
  const bool serves = dense && !adapter_rows_.empty();
  if (!quantizes && !adapts && !serves)
    return ops_.fused_matmul(x, Transpose::kNo, weight, Transpose::kYes, y, epilogue);
  const Tensor& product = epilogue.product(y);
  if (quantizes)
    quantized_project(*dense, x, weight, product);
  else
    ops_.matmul(x, Transpose::kNo, weight, Transpose::kYes, product, Accumulate::kNo);
  if (adapts) add_adapters(*dense, x, product);
  if (serves) add_served_adapters(*dense, x, product);
  finish_product(ops_, epilogue, y);
}

// The bias is added once, after the sum over ranks; if there is only one rank, within the GEMM.
void Transformer::project_and_sum(const Dense& dense, ExchangeSite site, const Tensor& x,
                                  const Tensor& weight, const Tensor& bias) {
  const Tensor delta = stream(plan_.delta), partial = exchange_.partial_rows(delta);
  const bool splits = splits_rows();
  project(dense, x, weight, {.bias = splits ? Tensor{} : bias}, partial);
  exchange_.sum_rows({site, dense->layer}, partial, delta);
  if (splits && exists(bias)) ops_.add_bias(bias, delta);
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
  const auto starts = rows * static_cast<size_t>(plan_.part().sequence.ranks);
  MUSTER_CHECK(batch.starts.size() == (plan_.packed ? starts : 0))
      << "a batch of " << batch.starts.size() << " starts for a plan of " << rows << " tokens";
  if (plan_.packed) upload_starts(batch.starts);
  if (plan_.routed_weights == plan_.weights || !exists(target_weights())) return;
  const Tensor all = view(plan_.routed_weights, {plan_.routed_tokens(), 1});
  const auto& shares = batch.routing_weights.empty() ? batch.weights : batch.routing_weights;
  MUSTER_CHECK(shares.size() == rows) << shares.size() << " shares of " << rows << " tokens";
  ops_.upload(shares.data() + plan_.first_own_row(), own_routed(all));
  exchange_.fill_routed({ExchangeSite::kTargetWeights}, all);
}

// Uploads the starts for the positions of attention, which include this rank's positions.
void Transformer::upload_starts(std::span<const int32_t> starts) {
  const AxisCoordinate sequence = plan_.part().sequence;
  ops_.upload(starts.data(), view_i32(arena_, plan_.attention.starts, rows_ * sequence.ranks));
  if (sequence.ranks == 1) return;
  const int64_t each = shape_.seq_len;
  for (int64_t b = 0; b < plan_.batch; ++b) {
    const int64_t from = (b * sequence.ranks + sequence.index) * each;
    ops_.upload(starts.data() + from, tensor_at(shape_.starts, b * each, {each}));
  }
}

LossSum Transformer::forward(const Batch& batch) { return evaluate_run(plan_.run(), batch); }

LossSum Transformer::evaluate_run(const LayerRun& run, const Batch& batch) {
  MUSTER_CHECK(!plan_.decodes()) << "a plan for decoding";
  enter(run, batch.dropout.in_forward ? std::optional(batch.dropout) : std::nullopt);
  upload(batch);
  LossSum sum = forward_layers();
  if (broken()) return {};
  if (!plan_.ends_model(run)) return sum;
  sum += head_loss();
  release_end();
  return sum;
}

LossSum Transformer::forward_backward(const Batch& batch, Accumulate accumulate) {
  MUSTER_CHECK(plan_.pipeline().has_all_layers()) << "some of the layers";
  if (accumulate == Accumulate::kNo) reset_amaxes();
  LossSum sum = forward_run(plan_.run(), batch);
  if (!broken()) sum += backward_layers_and_ends(accumulate);
  enter(plan_.run(), std::nullopt);
  return sum;
}

void Transformer::reset_amaxes() {
  if (!amaxes().empty()) ops_.fill(view(plan_.quantized.amax, {scaling_scales(plan_.model)}), 0);
}

void Transformer::enter(const LayerRun& run, const std::optional<DropoutSource>& dropout) {
  run_ = run;
  dropout_ = dropout;
}

LossSum Transformer::forward_run(const LayerRun& run, const Batch& batch) {
  MUSTER_CHECK(plan_.training) << "a plan without gradients";
  enter(run, batch.dropout);
  upload(batch);
  return forward_layers();
}

Tensor Transformer::entrance(const LayerRun& run) const {
  return stream(plan_.buffers_of(run, run.first).input);
}

void Transformer::expect(std::optional<size_t> block) {
  if (block) blocks_.expect(*block);
}

void Transformer::release_end() {
  blocks_.release(plan_.end_block());
  if (plan_.head_block() != plan_.end_block()) blocks_.release(plan_.head_block());
}

// Embeds the tokens: writes the residual stream at the entrance of the first layer.
void Transformer::embed() {
  const OpRange range(ops_, "embedding");
  blocks_.acquire(plan_.embedding_block());
  if (blocks_.broken()) return;
  blocks_.prefetch(plan_.layer_block(0));
  const Tensor stream = entrance(run_);
  const Tensor partial = exchange_.partial_rows(stream);
  ops_.embedding(view_i32(arena_, plan_.tokens, rows_), weights_->embedding, vocabulary_slice(),
                 embedding_scale(), partial);
  exchange_.sum_rows({ExchangeSite::kEmbedding}, partial, stream);
  if (const Tensor& table = weights_->positions; exists(table)) {
    const Tensor rows = plan_.decodes() ? view(plan_.paged.learned, {rows_, width_}) : table;
    ops_.add_positions(rows, own_token_rows(), own_starts(), stream);
  }
  blocks_.release(plan_.embedding_block());
  show("embeddings", stream);
  apply_dropout_to_own_rows(DropoutSite::kInput, 0, stream);
}

size_t Transformer::block_after(size_t layer) const {
  return plan_.is_last(layer) ? plan_.end_block() : plan_.layer_block(layer + 1);
}

// Runs the layers of the run, from the residual stream at its entrance to the stream after the last
// layer and, at the end of the model, final_normed. Each norm is fused with the residual addition
// before it, so layer i computes the normed input of layer i + 1.
LossSum Transformer::forward_layers() {
  const OpRange range(ops_, "forward");
  if (plan_.begins_model(run_)) embed();
  blocks_.acquire(plan_.layer_block(run_.first));
  if (broken()) return {};
  make_normed1(run_.first);
  for (size_t i = run_.first; i < run_.end; ++i) {
    const OpRange layer(ops_, "layer", static_cast<int64_t>(i));
    const bool last = plan_.is_last(i), continues = i + 1 != run_.end || last;
    if (continues)
      blocks_.prefetch(block_after(i));
    else
      expect(block_after_pass_);
    replayed(Piece::kLayer, i, Accumulate::kNo, [&] {
      make_qkv(i);
      make_context(i);
      make_middle(i);
      show_attention(i);
      if (has_experts(i)) {
        make_routing(i);
        exchange_.count_rows({ExchangeSite::kRouter, i}, expert_traffic(i));
      }
      make_gate_up(i, /*with_act=*/true);
      make_delta(i);
      show_mlp(i);
      if (!last) offload(i);
    });
    if (!continues) break;
    blocks_.acquire(block_after(i));
    if (broken()) return {};
    const LayerBuffers& next = buffers_of(last ? i : i + 1);
    ops_.add_norm(norm_, stream(buffers_of(i).middle), stream(plan_.delta),
                  last ? weights_->final_norm : weights_->layers[i + 1].norm1,
                  stream(last ? plan_.output : next.input),
                  stream(last ? plan_.final_normed : next.normed1),
                  stats(last ? plan_.final_stats : next.stats1));
    blocks_.release(plan_.layer_block(i));
  }
  if (!plan_.ends_model(run_)) {
    blocks_.release(plan_.layer_block(run_.end - 1));
    return sum_routing();
  }
  if (plan_.head_block() != plan_.end_block()) blocks_.acquire(plan_.head_block());
  if (broken()) return {};
  scale_logits(stream(plan_.final_normed));
  show("final_normed", stream(plan_.final_normed));
  return sum_routing();
}

void Transformer::leave_run(const Tensor& exit) {
  ops_.add(stream(buffers_of(run_.end - 1).middle), stream(plan_.delta), exit);
}

}  // namespace muster::trainer
