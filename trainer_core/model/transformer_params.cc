#include "trainer_core/model/transformer_params.h"

#include <map>
#include <string>
#include <string_view>

#include <absl/strings/str_cat.h>

namespace muster::trainer {
namespace {

// Where one parameter of the rank is, or its gradient.
struct Place {
  char* data = nullptr;
  DType dtype = DType::kF32;
  std::vector<int64_t> extent;  // of what the rank computes with

  int64_t bytes() const {
    int64_t bytes = static_cast<int64_t>(dtype_bytes(dtype));
    for (const int64_t count : extent) bytes *= count;
    return bytes;
  }
};

// Of each row of the table.
std::vector<Place> places_of(const TransformerPlan& plan, const Arena& arena, bool gradients) {
  std::vector<Place> places(plan.params.size());
  if (plan.rounds_params()) {
    const RoundedParams rounded = rounded_params(plan.params);
    char* const block = static_cast<char*>(arena.buffer(plan.param_block));
    for (size_t i = 0; i < places.size(); ++i) {
      const ParamSpec& spec = plan.params[i];
      places[i] = {block + rounded.offsets[i], spec.rounded_type(), spec.shape};
    }
    return places;
  }
  const std::vector<ParamBucket>& buckets = plan.sharding.layout.buckets();
  for (size_t i = 0; i < buckets.size(); ++i) {
    const BucketMemory& memory = plan.blocks.buckets[i];
    const MemoryPlace& start = gradients ? memory.gradients : memory.weights;
    const DType dtype = gradients ? DType::kF32 : buckets[i].gathered;
    for (const ShardRow& row : buckets[i].rows) {
      places[row.param] = {static_cast<char*>(arena.buffer(start.buffer)) + start.offset +
                               row.box.offset * static_cast<int64_t>(dtype_bytes(dtype)),
                           dtype, row.box.extent};
    }
  }
  return places;
}

// Finds parameters by their names in the table.
class Finder {
 public:
  Finder(const TransformerPlan& plan, const Arena& arena, bool gradients)
      : places_(places_of(plan, arena, gradients)) {
    for (size_t i = 0; i < plan.params.size(); ++i) rows_.emplace(plan.params[i].name, i);
  }

  // The named parameter with its `stacked - 1` neighbours below it as one; no data when there is none on this rank.
  Tensor find(const std::string& name, size_t stacked = 1) const {
    const auto found = rows_.find(name);
    if (found == rows_.end()) return {};
    const Place& first = places_[found->second];
    if (first.data == nullptr) return {};  // another stage's
    int64_t rows = 0;
    const char* end = first.data;
    for (size_t i = 0; i < stacked; ++i) {
      const Place& part = places_[found->second + i];
      MUSTER_CHECK(part.data == end) << name << " and what is stacked below it lie apart";
      rows += part.extent[0];
      end += part.bytes();
    }
    return first.extent.size() == 1 ? Tensor::of(first.dtype, first.data, {rows})
                                    : Tensor::of(first.dtype, first.data, {rows, first.extent[1]});
  }
  // The named matrix and those below it as `count` of `rows` rows.
  Tensor experts(const std::string& name, int64_t count, int64_t rows) const {
    const Tensor first = find(name);
    if (first.data == nullptr) return {};
    return Tensor::of(first.dtype, first.data, {count, rows, first.dim(1)});
  }
  NormWeights norm(const std::string& name) const {
    return {find(name + ".weight"), find(name + ".bias")};
  }

 private:
  std::vector<Place> places_;
  std::map<std::string_view, size_t> rows_;
};

}  // namespace

Transformer::Weights::Weights(const TransformerPlan& plan, const Arena& arena, What what) {
  const Finder finder(plan, arena, what == What::kGradients);
  embedding = finder.find("model.embed_tokens.weight");
  positions = finder.find("model.embed_positions.weight");
  final_norm = finder.norm("model.norm");
  head = plan.model.logits_via_embedding ? embedding : finder.find("lm_head.weight");
  const size_t gates = plan.model.gated_mlp ? 2 : 1;
  const int64_t experts_width = plan.expert_activation().input_width(plan.expert_columns().count);
  const Share own_experts = plan.own_experts();
  const std::string first_expert = std::to_string(own_experts.first);
  // Queries, keys and values as one, or apart.
  const size_t stacked = plan.stacks_qkv() ? 1 : 3;
  const auto keys_values = [&](const std::string& prefix, const char* kind) {
    return plan.stacks_qkv() ? finder.find(prefix + "self_attn.k_proj." + kind, 2) : Tensor{};
  };
  const std::string first = plan.model.gated_mlp ? "mlp.gate_proj" : "mlp.up_proj";
  for (int32_t layer = 0; layer < plan.model.num_layers; ++layer) {
    const std::string prefix = "model.layers." + std::to_string(layer) + ".";
    layers.push_back(
        {.norm1 = finder.norm(prefix + "input_layernorm"),
         .qkv = finder.find(prefix + "self_attn.q_proj.weight", stacked),
         .qkv_bias = finder.find(prefix + "self_attn.q_proj.bias", stacked),
         .kv = keys_values(prefix, "weight"),
         .kv_bias = keys_values(prefix, "bias"),
         .out = finder.find(prefix + "self_attn.o_proj.weight"),
         .out_bias = finder.find(prefix + "self_attn.o_proj.bias"),
         .relative = finder.find(prefix + "self_attn.relative_attention_bias.weight"),
         .norm2 = finder.norm(prefix + "post_attention_layernorm"),
         .gate_up = finder.find(prefix + first + ".weight", gates),
         .gate_up_bias = finder.find(prefix + first + ".bias", gates),
         .down = finder.find(prefix + "mlp.down_proj.weight"),
         .down_bias = finder.find(prefix + "mlp.down_proj.bias"),
         .router = finder.find(prefix + "block_sparse_moe.gate.weight"),
         .experts_in = finder.experts(
             absl::StrCat(prefix, "block_sparse_moe.experts.", first_expert, ".w1.weight"),
             own_experts.count, experts_width),
         .experts_down = finder.experts(
             absl::StrCat(prefix, "block_sparse_moe.experts.", first_expert, ".w2.weight"),
             own_experts.count, plan.model.emb_dim)});
  }
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

std::span<float> loading_params(const TransformerPlan& plan, Arena& arena) {
  return {arena.f32(plan.loading_block),
          static_cast<size_t>(parameter_count(plan.params) + scaling_elements(plan.model))};
}

void settle_params(const TransformerPlan& plan, Arena& arena) {
  if (plan.rounds_params()) round_in_place(plan.params, arena.f32(plan.loading_block));
}

}  // namespace muster::trainer
