#include "trainer_core/model/transformer_params.h"

#include <map>
#include <string>
#include <string_view>

#include <absl/strings/str_cat.h>

namespace muster::trainer {
namespace {

// The address of a parameter of the rank, or of its gradient.
struct ParamView {
  char* data = nullptr;
  DType dtype = DType::kF32;
  std::vector<int64_t> extent;  // shape of the part that the rank computes with

  int64_t bytes() const {
    int64_t bytes = static_cast<int64_t>(dtype_bytes(dtype));
    for (const int64_t count : extent) bytes *= count;
    return bytes;
  }
};

// The addresses of parameters by name.
using ParamViews = std::map<std::string_view, ParamView>;

// Returns the address of each parameter of the rank, of that of the reference model, or of its
// gradient.
ParamViews views_of(const TransformerPlan& plan, const Arena& arena, bool gradients,
                    bool reference) {
  ParamViews views;
  if (plan.rounds_params()) {
    const std::vector<ParamSpec>& table = plan.sharding.layout.table();
    const RoundedParams rounded = rounded_params(table);
    char* const block = static_cast<char*>(arena.buffer(plan.param_block));
    for (size_t i = 0; i < table.size(); ++i) {
      const ParamSpec& spec = table[i];
      views[spec.name] = {block + rounded.offsets[i], spec.rounded_type(), spec.shape};
    }
    return views;
  }
  const auto add = [&](const ShardLayout& layout, const std::vector<BucketMemory>& locations) {
    for (size_t i = 0; i < layout.buckets().size(); ++i) {
      const ParamBucket& bucket = layout.buckets()[i];
      const BufferLocation& start = gradients ? locations[i].gradients : locations[i].weights;
      const DType dtype = gradients ? DType::kF32 : bucket.gathered;
      const bool is_in_place = start.buffer == plan.param_block;
      const BufferId buffer = reference && is_in_place ? plan.reference_block : start.buffer;
      char* const data = static_cast<char*>(arena.buffer(buffer)) + start.offset;
      for (const ShardRow& row : bucket.rows) {
        views[layout.table()[row.param].name] = {
            data + row.box.offset * static_cast<int64_t>(dtype_bytes(dtype)), dtype,
            row.box.extent};
      }
    }
  };
  add(plan.sharding.layout, plan.blocks.buckets);
  if (!gradients) add(plan.sharding.frozen, plan.blocks.frozen);
  if (!gradients) add(plan.sharding.quantized, plan.blocks.quantized);
  return views;
}

// Finds parameters by their names in the table.
class Finder {
 public:
  Finder(const TransformerPlan& plan, const Arena& arena, bool gradients, bool reference)
      : params_(plan.params), views_(views_of(plan, arena, gradients, reference)) {
    for (size_t i = 0; i < params_.size(); ++i) rows_.emplace(params_[i].name, i);
  }

  // Returns the parameter `name` stacked with the `stacked - 1` parameters after it. The result has
  // no data if the rank does not have the parameter, or if it is frozen and has no gradient.
  Tensor find(const std::string& name, size_t stacked = 1) const {
    const auto found = rows_.find(name);
    if (found == rows_.end()) return {};
    const ParamView* const first = view(found->second);
    if (first == nullptr) return {};
    int64_t rows = 0;
    const char* end = first->data;
    for (size_t i = 0; i < stacked; ++i) {
      const ParamView* const part = view(found->second + i);
      MUSTER_CHECK(part != nullptr && part->data == end)
          << name << " and what is stacked below it lie apart";
      rows += part->extent[0];
      end += part->bytes();
    }
    return first->extent.size() == 1
               ? Tensor::of(first->dtype, first->data, {rows})
               : Tensor::of(first->dtype, first->data, {rows, first->extent[1]});
  }
  // Returns the matrix `name` and the matrices after it as `count` matrices of `rows` rows.
  Tensor experts(const std::string& name, int64_t count, int64_t rows) const {
    const Tensor first = find(name);
    if (first.data == nullptr) return {};
    return Tensor::of(first.dtype, first.data, {count, rows, first.dim(1)});
  }
  NormWeights norm(const std::string& name) const {
    return {find(name + ".weight"), find(name + ".bias")};
  }

 private:
  // Returns null if the rank does not have the row of the table.
  const ParamView* view(size_t row) const {
    const auto found = views_.find(params_[row].name);
    return found == views_.end() ? nullptr : &found->second;
  }

  const std::vector<ParamSpec>& params_;
  ParamViews views_;
  std::map<std::string_view, size_t> rows_;
};

}  // namespace

Transformer::Weights::Weights(const TransformerPlan& plan, const Arena& arena, What what) {
  const Finder finder(plan, arena, what == What::kGradients, what == What::kReference);
  embedding = finder.find("model.embed_tokens.weight");
  positions = finder.find("model.embed_positions.weight");
  final_norm = finder.norm("model.norm");
  head = plan.model.logits_via_embedding ? embedding : finder.find("lm_head.weight");
  const size_t gates = plan.model.gated_mlp ? 2 : 1;
  const int64_t experts_width = plan.expert_activation().input_width(plan.expert_columns().count);
  const Share own_experts = plan.own_experts();
  const std::string first_expert = std::to_string(own_experts.first);
  // Queries, keys and values stacked, or separate.
  const size_t stacked = plan.stacks_qkv() ? 1 : 3;
  const auto keys_values = [&](const std::string& prefix, const char* kind) {
    return plan.stacks_qkv() ? finder.find(prefix + "self_attn.k_proj." + kind, 2) : Tensor{};
  };
  const AttentionShape heads = plan.attention_shape();
  const auto rows_of = [&](LoraTarget target) -> int64_t {  // this rank's rows of a projection
    switch (target) {
      case LoraTarget::kQuery:
        return heads.out_width();
      case LoraTarget::kKey:
      case LoraTarget::kValue:
        return heads.kv_heads * heads.head_dim;
      case LoraTarget::kGate:
      case LoraTarget::kUp:
        return plan.mlp_columns().count;
      case LoraTarget::kOut:
      case LoraTarget::kDown:
        break;
    }
    return plan.model.emb_dim;
  };
  const auto adapters_of = [&](int32_t layer, DenseProduct product) {
    const auto projections = adapted_projections(plan.model, layer, product);
    Adapters adapters;
    adapters.is_whole = projections.size() == 1;
    std::string first_module;
    int64_t row = 0;
    for (const AdaptedProjection& projection : projections) {
      if (plan.model.lora.adapts(projection.target)) {
        if (first_module.empty()) first_module = projection.module;
        adapters.projections.push_back({row, finder.find(projection.module + ".lora_B.weight")});
      }
      row += rows_of(projection.target);
    }
    adapters.a = finder.find(first_module + ".lora_A.weight", adapters.projections.size());
    return adapters;
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
             own_experts.count, plan.model.emb_dim),
         .adapters = {}});
    for (size_t product = 0; product < kDenseProducts; ++product) {
      layers.back().adapters[product] = adapters_of(layer, static_cast<DenseProduct>(product));
    }
  }
}

}  // namespace muster::trainer
