#include "trainer_core/model/param_spec.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>

#include <absl/strings/str_cat.h>

#include "common/random/fnv.h"
#include "trainer_core/base/bf16.h"

namespace muster::trainer {
namespace {

// Returns the Philox stream of a parameter: the FNV-1a hash of its name, so that an additional
// layer does not change the values of the others.
uint64_t stream_of(std::string_view name) { return fnv1a(name); }

class TableBuilder {
 public:
  explicit TableBuilder(const ModelConfig& config) : config_(config), part_(part_of_base()) {}

  // Sets the block of the parameters that are added next.
  void begin(BlockKind kind, int32_t layer = 0) { block_ = {kind, layer}; }

  // (rows, columns) of a matrix that multiplies vectors of `columns` elements: fan_in = columns.
  ParamSpec& matrix(const std::string& name, int64_t rows, int64_t columns, TensorSplit split) {
    return as_matrix(
        random(name, rows, columns, split, 1.0 / std::sqrt(static_cast<double>(columns))));
  }
  // Adds a matrix that is never stored in blocks: the token table, the head, or a router.
  ParamSpec& plain_matrix(const std::string& name, int64_t rows, int64_t columns,
                          TensorSplit split) {
    ParamSpec& spec = matrix(name, rows, columns, split);
    spec.part = part_;
    return spec;
  }
  void embedding(const std::string& name) {
    ParamSpec& spec = plain_matrix(name, config_.vocab_size, config_.emb_dim,
                                   TensorSplit::rows(config_.vocab_size));
    if (config_.embedding_init_std > 0) spec.init_std = config_.embedding_init_std;
  }
  // Adds the query projection. Its standard deviation compensates for query_scale, so that initial
  // scores are as large as with 1 / sqrt(h).
  void queries(const std::string& name) {
    const int64_t heads = config_.num_query_heads, h = config_.head_dim, d = config_.emb_dim;
    const double scale =
        config_.query_scale > 0 ? config_.query_scale * std::sqrt(static_cast<double>(h)) : 1.0;
    as_matrix(random(name, heads * h, d, TensorSplit::rows(heads),
                     1.0 / (scale * std::sqrt(static_cast<double>(d)))));
  }
  void positions(const std::string& name) {
    random(name, config_.trainable_position_size, config_.emb_dim, TensorSplit::none(), 1.0);
  }
  // Adds a relative bias (H, buckets). Its standard deviation is that of praxis, 1 / sqrt(H *
  // buckets), whatever the model's init_std is.
  void relative_bias(const std::string& name) {
    const int64_t heads = config_.num_query_heads, buckets = config_.relative_buckets.count;
    ParamSpec& spec = add(name, {heads, buckets}, TensorSplit::rows(heads));
    spec.init_std = 1.0 / std::sqrt(static_cast<double>(heads * buckets));
  }
  void bias(const std::string& name, int64_t width, TensorSplit split) {
    add(name, {width}, split).init = InitKind::kZeros;
  }
  void norm(const std::string& name) {
    const bool offset = config_.norm_gain_offset != 0;
    add(name + ".weight", {config_.emb_dim}, TensorSplit::none()).init =
        offset ? InitKind::kZeros : InitKind::kOnes;
    if (config_.norm_type == NormType::kLayer)
      bias(name + ".bias", config_.emb_dim, TensorSplit::none());
  }
  // Adds the adapters of a GEMM's projections.
  void adapters(const std::vector<AdaptedProjection>& projections) {
    part_ = ParamPart::kTrained;
    const int64_t rank = config_.lora.rank;
    for (const AdaptedProjection& adapted : projections) {
      const int64_t in = projection_shape(config_, adapted.target).in;
      ParamSpec& spec = add(adapted.module + ".lora_A.weight", {rank, in}, adapted.in_split);
      spec.init_std = 1.0 / std::sqrt(3.0 * static_cast<double>(in));
    }
    for (const AdaptedProjection& adapted : projections) {
      const int64_t out = projection_shape(config_, adapted.target).out;
      add(adapted.module + ".lora_B.weight", {out, rank}, adapted.out_split).init =
          InitKind::kZeros;
    }
    part_ = part_of_base();
  }
  std::vector<ParamSpec> take() { return std::move(table_); }

 private:
  ParamSpec& as_matrix(ParamSpec& spec) const {
    spec.is_matrix = true;
    if (config_.lora.weight_type != WeightType::kPlain) spec.part = ParamPart::kQuantized;
    return spec;
  }
  ParamPart part_of_base() const {
    return config_.lora.enabled() ? ParamPart::kFrozen : ParamPart::kTrained;
  }
  ParamSpec& random(const std::string& name, int64_t rows, int64_t columns, TensorSplit split,
                    double default_std) {
    ParamSpec& spec = add(name, {rows, columns}, split);
    spec.init_std = config_.init_std > 0 ? config_.init_std : default_std;
    return spec;
  }
  ParamSpec& add(const std::string& name, std::vector<int64_t> shape, TensorSplit split) {
    ParamSpec& spec = table_.emplace_back();
    spec.name = name;
    spec.shape = std::move(shape);
    spec.offset = offset_;
    spec.block = block_;
    spec.split = split;
    spec.part = part_;
    offset_ += spec.elements();
    return spec;
  }

  const ModelConfig& config_;
  ParamPart part_;  // that of the parameters that are added next
  ParamBlock block_;
  std::vector<ParamSpec> table_;
  int64_t offset_ = 0;
};

void add_attention(const ModelConfig& config, const std::string& prefix, TableBuilder& table) {
  const int64_t d = config.emb_dim;
  const int64_t query = int64_t{config.num_query_heads} * config.head_dim;
  const int64_t kv = int64_t{config.num_kv_heads} * config.head_dim;
  const auto of_heads = TensorSplit::rows(config.num_query_heads);
  const auto of_kv_heads = TensorSplit::rows(config.num_kv_heads);
  table.queries(prefix + "q_proj.weight");
  table.matrix(prefix + "k_proj.weight", kv, d, of_kv_heads);
  table.matrix(prefix + "v_proj.weight", kv, d, of_kv_heads);
  if (config.qkv_bias) {
    table.bias(prefix + "q_proj.bias", query, of_heads);
    table.bias(prefix + "k_proj.bias", kv, of_kv_heads);
    table.bias(prefix + "v_proj.bias", kv, of_kv_heads);
  }
  table.matrix(prefix + "o_proj.weight", d, query, TensorSplit::columns(config.num_query_heads));
  if (config.out_bias) table.bias(prefix + "o_proj.bias", d, TensorSplit::none());
  if (config.relative_buckets.exist())
    table.relative_bias(prefix + "relative_attention_bias.weight");
}

void add_mlp(const ModelConfig& config, const std::string& prefix, TableBuilder& table) {
  const int64_t d = config.emb_dim, m = config.mlp_dim;
  const auto rows = TensorSplit::rows(m);
  if (config.gated_mlp) table.matrix(prefix + "gate_proj.weight", m, d, rows);
  table.matrix(prefix + "up_proj.weight", m, d, rows);
  if (config.mlp_bias && config.gated_mlp) table.bias(prefix + "gate_proj.bias", m, rows);
  if (config.mlp_bias) table.bias(prefix + "up_proj.bias", m, rows);
  table.matrix(prefix + "down_proj.weight", d, m, TensorSplit::columns(m));
  if (config.mlp_bias) table.bias(prefix + "down_proj.bias", d, TensorSplit::none());
}

// Names are Mixtral's. Matrices of one kind are adjacent: (E, 2m, d), then (E, d, m).
void add_experts(const ModelConfig& config, const std::string& prefix, TableBuilder& table) {
  const int64_t d = config.emb_dim, m = config.experts.mlp_dim;
  const auto matrix = [&](int32_t e, const char* name, int64_t rows, int64_t columns,
                          TensorSplit split) {
    const std::string full = prefix + "experts." + std::to_string(e) + "." + name + ".weight";
    table.matrix(full, rows, columns, split).expert = e;
  };
  table.plain_matrix(prefix + "gate.weight", config.experts.count, d, TensorSplit::none());
  for (int32_t e = 0; e < config.experts.count; ++e) {
    matrix(e, "w1", m, d, TensorSplit::rows(m));
    if (config.experts.gated) matrix(e, "w3", m, d, TensorSplit::rows(m));
  }
  for (int32_t e = 0; e < config.experts.count; ++e) matrix(e, "w2", d, m, TensorSplit::columns(m));
}

void add_layer(const ModelConfig& config, int32_t layer, TableBuilder& table) {
  const std::string prefix = "model.layers." + std::to_string(layer) + ".";
  table.begin(BlockKind::kLayer, layer);
  table.norm(prefix + "input_layernorm");
  add_attention(config, prefix + "self_attn.", table);
  if (!config.parallel_block) table.norm(prefix + "post_attention_layernorm");
  if (config.experts.in_layer(layer)) {
    add_experts(config, prefix + "block_sparse_moe.", table);
  } else {
    add_mlp(config, prefix + "mlp.", table);
  }
  for (size_t product = 0; product < kDenseProducts; ++product) {
    auto projections = adapted_projections(config, layer, static_cast<DenseProduct>(product));
    std::erase_if(projections, [&](const AdaptedProjection& projection) {
      return !config.lora.adapts(projection.target);
    });
    table.adapters(projections);
  }
}

}  // namespace

std::vector<ParamSpec> model_params(const ModelConfig& config) {
  TableBuilder table(config);
  table.begin(BlockKind::kEmbedding);
  table.embedding("model.embed_tokens.weight");
  if (config.learns_positions()) table.positions("model.embed_positions.weight");
  for (int32_t layer = 0; layer < config.num_layers; ++layer) add_layer(config, layer, table);
  table.begin(BlockKind::kEnd);
  table.norm("model.norm");
  if (!config.logits_via_embedding) {
    table.plain_matrix("lm_head.weight", config.vocab_size, config.emb_dim,
                       TensorSplit::rows(config.vocab_size));
  }
  return table.take();
}

std::vector<ParamSpec> part_of(const std::vector<ParamSpec>& table, ParamPart part) {
  std::vector<ParamSpec> specs;
  int64_t offset = 0;
  for (const ParamSpec& spec : table) {
    if (spec.part != part) continue;
    specs.push_back(spec);
    specs.back().offset = offset;
    offset += spec.elements();
  }
  return specs;
}

std::vector<AdaptedProjection> adapted_projections(const ModelConfig& config, int32_t layer,
                                                   DenseProduct product) {
  const std::string prefix = absl::StrCat("model.layers.", layer, ".");
  const std::string attention = prefix + "self_attn.", mlp = prefix + "mlp.";
  const auto heads = config.num_query_heads, kv_heads = config.num_kv_heads;
  const int64_t m = config.mlp_dim;
  const bool is_mlp = product == DenseProduct::kGateUp || product == DenseProduct::kDown;
  if (is_mlp && config.experts.in_layer(layer)) return {};
  switch (product) {
    case DenseProduct::kQkv:
      return {{LoraTarget::kQuery, attention + "q_proj", TensorSplit::rows(heads), {}},
              {LoraTarget::kKey, attention + "k_proj", TensorSplit::rows(kv_heads), {}},
              {LoraTarget::kValue, attention + "v_proj", TensorSplit::rows(kv_heads), {}}};
    case DenseProduct::kOut:
      return {{LoraTarget::kOut, attention + "o_proj", {}, TensorSplit::columns(heads)}};
    case DenseProduct::kGateUp: {
      const AdaptedProjection up{LoraTarget::kUp, mlp + "up_proj", TensorSplit::rows(m), {}};
      if (!config.gated_mlp) return {up};
      return {{LoraTarget::kGate, mlp + "gate_proj", TensorSplit::rows(m), {}}, up};
    }
    case DenseProduct::kDown:
      return {{LoraTarget::kDown, mlp + "down_proj", {}, TensorSplit::columns(m)}};
  }
  return {};
}

int64_t parameter_count(const std::vector<ParamSpec>& table) {
  return table.empty() ? 0 : table.back().offset + table.back().elements();
}

RoundedParams rounded_params(const std::vector<ParamSpec>& table) {
  constexpr auto kAlignment = static_cast<int64_t>(sizeof(float));
  RoundedParams layout;
  for (const ParamSpec& spec : table) {
    if (!spec.is_matrix) layout.bytes = (layout.bytes + kAlignment - 1) / kAlignment * kAlignment;
    layout.offsets.push_back(layout.bytes);
    layout.bytes += spec.elements() * static_cast<int64_t>(dtype_bytes(spec.rounded_type()));
  }
  return layout;
}

NormalStream initial_values(const ParamSpec& spec, uint64_t seed) {
  return {.key = seed, .stream = stream_of(spec.name), .std = spec.init_std};
}

void init_part(const ParamSpec& spec, uint64_t seed, const TensorBox& box, float* out) {
  const std::span<float> all(out, static_cast<size_t>(box.elements()));
  switch (spec.init) {
    case InitKind::kZeros:
      std::fill(all.begin(), all.end(), 0.0F);
      break;
    case InitKind::kOnes:
      std::fill(all.begin(), all.end(), 1.0F);
      break;
    case InitKind::kNormal: {
      if (all.empty()) break;
      const NormalStream values = initial_values(spec, seed);
      const CommonRuns runs(whole_box(spec), box);
      for (int64_t i = 0; i < runs.count(); ++i) {
        const auto [from, to] = runs.at(i);
        fill_normal(values, from,
                    all.subspan(static_cast<size_t>(to), static_cast<size_t>(runs.length())));
      }
      break;
    }
  }
}

void init_params(const std::vector<ParamSpec>& table, uint64_t seed, float* block) {
  for (const ParamSpec& spec : table) init_part(spec, seed, whole_box(spec), block + spec.offset);
}

}  // namespace muster::trainer
