#include "trainer_core/model/param_spec.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <string_view>
#include <utility>

#include "common/normal.h"
#include "common/philox.h"
#include "trainer_core/base/fnv.h"

namespace muster::trainer {
namespace {

// The Philox stream of a parameter: its name's FNV-1a hash (Fowler, Noll, Vo), so that adding a
// layer does not change the values of the others.
uint64_t stream_of(std::string_view name) { return fnv1a(name); }

class TableBuilder {
 public:
  // (rows, columns) of a matrix that multiplies vectors of `columns` elements: fan_in = columns.
  void matrix(std::string name, int64_t rows, int64_t columns, ShardAxis row_axis,
              ShardAxis column_axis) {
    ParamSpec spec;
    spec.name = std::move(name);
    spec.shape = {rows, columns};
    spec.shard = {row_axis, column_axis};
    spec.init_std = 1.0 / std::sqrt(static_cast<double>(columns));
    add(std::move(spec));
  }
  void norm(std::string name, int64_t width) {
    ParamSpec spec;
    spec.name = std::move(name);
    spec.shape = {width};
    spec.shard = {ShardAxis::kNone};
    spec.init = InitKind::kOnes;
    add(std::move(spec));
  }
  std::vector<ParamSpec> take() { return std::move(table_); }

 private:
  void add(ParamSpec spec) {
    spec.offset = offset_;
    offset_ += spec.elements();
    table_.push_back(std::move(spec));
  }

  std::vector<ParamSpec> table_;
  int64_t offset_ = 0;
};

void add_layer(const ModelConfig& config, int32_t layer, TableBuilder& table) {
  const int64_t d = config.emb_dim, m = config.mlp_dim;
  const int64_t query = int64_t{config.num_query_heads} * config.head_dim;
  const int64_t kv = int64_t{config.num_kv_heads} * config.head_dim;
  const std::string prefix = "model.layers." + std::to_string(layer) + ".";
  constexpr auto kTensor = ShardAxis::kTensor;
  constexpr auto kFsdp = ShardAxis::kFsdp;
  table.norm(prefix + "input_layernorm.weight", d);
  table.matrix(prefix + "self_attn.q_proj.weight", query, d, kTensor, kFsdp);
  table.matrix(prefix + "self_attn.k_proj.weight", kv, d, kTensor, kFsdp);
  table.matrix(prefix + "self_attn.v_proj.weight", kv, d, kTensor, kFsdp);
  table.matrix(prefix + "self_attn.o_proj.weight", d, query, kFsdp, kTensor);
  table.norm(prefix + "post_attention_layernorm.weight", d);
  table.matrix(prefix + "mlp.gate_proj.weight", m, d, kTensor, kFsdp);
  table.matrix(prefix + "mlp.up_proj.weight", m, d, kTensor, kFsdp);
  table.matrix(prefix + "mlp.down_proj.weight", d, m, kFsdp, kTensor);
}

// Value i of a parameter comes from word i of the stream.
void fill_normal(const Philox& philox, double std, std::span<float> out) {
  constexpr size_t kChunk = 256;  // words made side by side: they stay in the first-level cache
  const auto factor = static_cast<float>(std);
  std::array<uint32_t, kChunk> words{};
  std::array<float, kChunk> values{};
  for (size_t i = 0; i < out.size(); i += kChunk) {
    philox.fill(i / 4, std::span(words));
    for (size_t j = 0; j < values.size(); ++j) values[j] = factor * normal_from_bits(words[j]);
    const std::span<float> chunk = out.subspan(i, std::min(kChunk, out.size() - i));
    std::copy_n(values.begin(), chunk.size(), chunk.begin());
  }
}

}  // namespace

int64_t ParamSpec::elements() const {
  int64_t n = 1;
  for (const int64_t dim : shape) n *= dim;
  return n;
}

std::vector<ParamSpec> llama_params(const ModelConfig& config) {
  TableBuilder table;
  table.matrix("model.embed_tokens.weight", config.vocab_size, config.emb_dim, ShardAxis::kTensor,
               ShardAxis::kFsdp);
  for (int32_t layer = 0; layer < config.num_layers; ++layer) add_layer(config, layer, table);
  table.norm("model.norm.weight", config.emb_dim);
  if (!config.logits_via_embedding) {
    table.matrix("lm_head.weight", config.vocab_size, config.emb_dim, ShardAxis::kTensor,
                 ShardAxis::kFsdp);
  }
  return table.take();
}

int64_t parameter_count(const std::vector<ParamSpec>& table) {
  return table.empty() ? 0 : table.back().offset + table.back().elements();
}

void init_params(const std::vector<ParamSpec>& table, uint64_t seed, float* block) {
  for (const ParamSpec& spec : table) {
    const std::span<float> out(block + spec.offset, static_cast<size_t>(spec.elements()));
    switch (spec.init) {
      case InitKind::kOnes:
        std::fill(out.begin(), out.end(), 1.0F);
        break;
      case InitKind::kNormal:
        fill_normal({.key = seed, .stream = stream_of(spec.name)}, spec.init_std, out);
        break;
    }
  }
}

}  // namespace muster::trainer
