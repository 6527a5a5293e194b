#include "trainer_core/model/transformer_plan.h"

#include <algorithm>

namespace muster::trainer {
namespace {

std::vector<AdaptedProjection> dense_projections(ModelConfig model, DenseProduct product) {
  model.experts = {};
  return adapted_projections(model, 0, product);
}

}  // namespace

int64_t received_rows_max(const RoutingShape& shape, int ranks) {
  if (ranks == 1) return shape.own_tokens() * shape.per_token;
  const int64_t own = shape.experts / ranks;
  // A token chooses an expert at most once. A group's capacity is shared by the ranks of the group.
  const int64_t chosen = ranks * shape.own_tokens() * std::min(shape.per_token, own);
  if (shape.capacity == 0) return chosen;
  return std::min(chosen, ranks * shape.groups * own * shape.capacity);
}

DenseShape TransformerPlan::dense_shape(DenseProduct product) const {
  const AttentionShape heads = attention_shape();
  const int64_t width = model.emb_dim, columns = mlp_columns().count;
  switch (product) {
    case DenseProduct::kQkv:
      return {heads.qkv_width(), width};
    case DenseProduct::kOut:
      return {width, heads.out_width()};
    case DenseProduct::kGateUp:
      return {activation().input_width(columns), width};
    case DenseProduct::kDown:
      return {width, columns};
  }
  return {};
}

int64_t TransformerPlan::projections_of(DenseProduct product) const {
  return std::ssize(dense_projections(model, product));
}

int64_t TransformerPlan::adapters_of(DenseProduct product) const {
  return std::ranges::count_if(
      dense_projections(model, product),
      [&](const AdaptedProjection& projection) { return model.lora.adapts(projection.target); });
}

LayerRun TransformerPlan::run(int32_t chunk, int32_t slot) const {
  const AxisCoordinate& coordinate = pipeline().stage;
  const int32_t number = chunk * coordinate.ranks + coordinate.index;
  const size_t first = static_cast<size_t>(number) * run_length();
  return {first, first + run_length(), static_cast<size_t>(slot)};
}

size_t TransformerPlan::layer_block(size_t layer) const {
  const size_t chunk = layer / run_length() / static_cast<size_t>(pipeline().stage.ranks);
  const bool has_embedding = sharding.layout.blocks().front().kind == BlockKind::kEmbedding;
  return (has_embedding ? 1 : 0) + chunk * run_length() + layer % run_length();
}

Positions TransformerPlan::own_positions() const {
  return sequence_positions(context_positions(seq_len, part().context), part().sequence);
}

AttentionShape TransformerPlan::attention_shape() const {
  const Positions own = own_positions();
  return {.batch = batch,
          .seq_len = own.count(),
          .heads = share_of(model.num_query_heads, part().tensor).count,
          .kv_heads = share_of(model.num_kv_heads, part().tensor).count,
          .head_dim = model.head_dim,
          .scale = model.query_scale,
          .soft_cap = model.attn_logits_soft_cap,
          .window = model.sliding_window_size,
          .extra_zero = model.attention_extra_zero,
          .buckets = model.relative_buckets,
          .positions = part().sequence_sharers() == 1 ? Positions() : own};
}

AttentionShape TransformerPlan::attended_shape() const {
  AttentionShape shape = attention_shape();
  if (part().sequence_sharers() == 1) return shape;
  shape.positions = context_positions(seq_len, part().context);
  shape.seq_len = shape.positions.count();
  shape.heads /= part().sequence.ranks;
  shape.kv_heads /= part().sequence.ranks;
  return shape;
}

WeightBlocks weight_blocks(const TransformerPlan& plan, const Arena& arena) {
  const WeightType type = plan.model.lora.weight_type;
  const int64_t elements = plan.sharding.quantized.elements();
  if (elements == 0) return {.type = type};
  return {
      .type = type,
      .codes = Tensor::of(DType::kI8, arena.buffer(plan.code_block), {code_bytes(type, elements)}),
      .scales = Tensor::f32(arena.f32(plan.scale_block), {elements / kWeightBlock})};
}

std::vector<TensorBox> stored_boxes(const TransformerPlan& plan) {
  std::vector<TensorBox> boxes;
  const std::vector<ParamSpec>& own = plan.sharding.layout.table();
  const RoundedParams rounded = rounded_params(own);
  for (size_t i = 0; i < own.size(); ++i) {
    TensorBox& box = boxes.emplace_back(tensor_box(plan.params[i], plan.part().tensor));
    box.offset = own[i].offset;
    if (!plan.rounds_params()) continue;
    box.dtype = own[i].rounded_type();
    box.offset = rounded.offsets[i] / static_cast<int64_t>(dtype_bytes(box.dtype));
  }
  // The scaling state, which every rank has, follows.
  const std::vector<TensorRow> rows = plan.rows();
  for (size_t i = own.size(); i < rows.size(); ++i) {
    boxes.push_back(whole_box(rows[i]));
    boxes.back().offset += plan.stored_parameters() - parameter_count(plan.params);
  }
  return boxes;
}

}  // namespace muster::trainer
