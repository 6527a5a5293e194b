// The ParamSpec table: one row per parameter, in the order of memory. It drives allocation,
// initialisation, checkpoints and the optimizer, so that none of them knows the model.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer_core/base/dtype.h"
#include "trainer_core/base/normal_fill.h"
#include "trainer_core/base/tensor_box.h"
#include "trainer_core/base/tensor_row.h"
#include "trainer_core/base/train_config.h"

namespace muster::trainer {

enum class InitKind { kZeros, kOnes, kNormal };

// What is gathered at once where ranks share the storage of parameters, in the order of the table: the embedding (and learned
// positions), each layer, the end (final norm, and the head where it is not tied).
enum class BlockKind : uint8_t { kEmbedding, kLayer, kEnd };
struct ParamBlock {
  BlockKind kind = BlockKind::kEmbedding;
  int32_t layer = 0;  // of kLayer

  friend bool operator==(const ParamBlock&, const ParamBlock&) = default;
};

// What tensor parallelism splits of a parameter: one dimension, between units: 32 heads of 128 rows, or 11,008 columns.
struct TensorSplit {
  size_t dim = 0;
  int64_t units = 0;  // divides the dimension; 0: the parameter is whole on every rank

  static TensorSplit none() { return {}; }
  static TensorSplit rows(int64_t units) { return {0, units}; }
  static TensorSplit columns(int64_t units) { return {1, units}; }
};

// Name and shape are Hugging Face's: "model.layers.0.self_attn.q_proj.weight", (out, in) for a projection.
struct ParamSpec : TensorRow {
  ParamBlock block;
  TensorSplit split;
  int32_t expert = -1;  // whose it is, of an expert's
  InitKind init = InitKind::kNormal;
  double init_std = 0;  // of kNormal
  // A product's operand or the table of tokens: what decoding in bf16 keeps rounded. The others stay fp32.
  bool is_matrix = false;

  DType rounded_type() const { return is_matrix ? DType::kBf16 : DType::kF32; }
};

// The table of a model: embedding, learned positions, layers (first norm, q, k, v, their biases, o, its bias, relative
// biases, second norm where blocks are not parallel, gate, up, their biases, down, its bias), final norm, head (absent when tied); of each only what the config has.
// A norm's bias follows its gain. q, k and v are neighbours in memory, as are gate and up, and their biases, so that each
// set is one matrix of stacked rows. Names are Hugging Face's of Llama, continued where Llama has no such parameter:
// "….bias", "model.embed_positions.weight", "….self_attn.relative_attention_bias.weight" (H, buckets), which is T5's transposed.
std::vector<ParamSpec> model_params(const ModelConfig& config);

// Sum of the table's elements: 6,738,415,616 for llama2-7b.
int64_t parameter_count(const std::vector<ParamSpec>& table);

// A block with its matrices in bf16: rows in the table's order without gaps, but that fp32 ones are aligned.
struct RoundedParams {
  std::vector<int64_t> offsets;  // of each row, in bytes
  int64_t bytes = 0;             // of the block
};
RoundedParams rounded_params(const std::vector<ParamSpec>& table);
// Makes it of a flat fp32 block, where that lies: its rows never begin behind those of the flat one.
void round_in_place(const std::vector<ParamSpec>& table, float* block);

// Initial values: value i of parameter p depends on (seed, p's name, i) alone, so that a rank makes those that it stores.
// MaxText's rule: matrices normal with std 1/sqrt(fan_in) or init_std (embeddings: embedding_init_std), learned positions with std 1 or init_std, norms so
// that they multiply by one, biases zero. praxis's for GLaM: relative biases with std 1 / sqrt(H buckets), and where a
// query_scale takes the place of 1 / sqrt(h), queries with a std that makes up for it.
// Returns the stream of a kNormal parameter's values: value i is the tensor's element i.
NormalStream initial_values(const ParamSpec& spec, uint64_t seed);
void init_part(const ParamSpec& spec, uint64_t seed, const TensorBox& box, float* out);  // dense
void init_params(const std::vector<ParamSpec>& table, uint64_t seed, float* block);      // all

}  // namespace muster::trainer
