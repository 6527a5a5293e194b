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

// Returns the address of each row of the table.
std::vector<ParamView> views_of(const TransformerPlan& plan, const Arena& arena, bool gradients) {
  std::vector<ParamView> views(plan.params.size());
  if (plan.rounds_params()) {
    const RoundedParams rounded = rounded_params(plan.params);
    char* const block = static_cast<char*>(arena.buffer(plan.param_block));
    for (size_t i = 0; i < views.size(); ++i) {
      const ParamSpec& spec = plan.params[i];
      views[i] = {block + rounded.offsets[i], spec.rounded_type(), spec.shape};
    }
    return views;
  }
  const std::vector<ParamBucket>& buckets = plan.sharding.layout.buckets();
  for (size_t i = 0; i < buckets.size(); ++i) {
    const BucketMemory& memory = plan.blocks.buckets[i];
    const BufferLocation& start = gradients ? memory.gradients : memory.weights;
    const DType dtype = gradients ? DType::kF32 : buckets[i].gathered;
    for (const ShardRow& row : buckets[i].rows) {
      views[row.param] = {static_cast<char*>(arena.buffer(start.buffer)) + start.offset +
                              row.box.offset * static_cast<int64_t>(dtype_bytes(dtype)),
                          dtype, row.box.extent};
    }
  }
  return views;
}

// Finds parameters by their names in the table.
class Finder {
 public:
  Finder(const TransformerPlan& plan, const Arena& arena, bool gradients)
      : views_(views_of(plan, arena, gradients)) {
    for (size_t i = 0; i < plan.params.size(); ++i) rows_.emplace(plan.params[i].name, i);
  }

  // Returns the parameter `name` stacked with the `stacked - 1` parameters after it. The result has
  // no data if the rank does not have the parameter.
  Tensor find(const std::string& name, size_t stacked = 1) const {
    const auto found = rows_.find(name);
    if (found == rows_.end()) return {};
    const ParamView& first = views_[found->second];
    if (first.data == nullptr) return {};  // on another stage
    int64_t rows = 0;
    const char* end = first.data;
    for (size_t i = 0; i < stacked; ++i) {
      const ParamView& part = views_[found->second + i];
      MUSTER_CHECK(part.data == end) << name << " and what is stacked below it lie apart";
      rows += part.extent[0];
      end += part.bytes();
    }
    return first.extent.size() == 1 ? Tensor::of(first.dtype, first.data, {rows})
                                    : Tensor::of(first.dtype, first.data, {rows, first.extent[1]});
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
  std::vector<ParamView> views_;
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
  // Queries, keys and values stacked, or separate.
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

}  // namespace muster::trainer
