// The ParamSpec table: one row per parameter, in memory order. Allocation, initialization,
// checkpoints and the optimizer are driven by it, and so are independent of the model.
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

// The unit of gathering if ranks share the storage of parameters, in the table's order: the
// embedding (with learned positions), each layer, the end (final norm, and the head unless tied).
enum class BlockKind : uint8_t { kEmbedding, kLayer, kEnd };
struct ParamBlock {
  BlockKind kind = BlockKind::kEmbedding;
  int32_t layer = 0;  // for kLayer

  friend bool operator==(const ParamBlock&, const ParamBlock&) = default;
};

// The split of a parameter by tensor parallelism: one dimension, at unit boundaries, such as 32
// heads of 128 rows, or 11,008 columns.
struct TensorSplit {
  size_t dim = 0;
  int64_t units = 0;  // divides the dimension; 0: every rank has the whole parameter

  static TensorSplit none() { return {}; }
  static TensorSplit rows(int64_t units) { return {0, units}; }
  static TensorSplit columns(int64_t units) { return {1, units}; }
};

// Name and shape are Hugging Face's: "model.layers.0.self_attn.q_proj.weight", (out, in) for a
// projection.
struct ParamSpec : TensorRow {
  ParamBlock block;
  TensorSplit split;
  int32_t expert = -1;  // index of the expert that owns it; -1: none
  InitKind init = InitKind::kNormal;
  double init_std = 0;  // for kNormal
  // A GEMM's operand or the token table: decoding in bf16 stores these rounded, the others in fp32.
  bool is_matrix = false;

  DType rounded_type() const { return is_matrix ? DType::kBf16 : DType::kF32; }
};

// Returns the table of a model: embedding, learned positions, layers, final norm, head. A layer
// has: first norm, q, k, v, their biases, o, its bias, relative biases, second norm (unless blocks
// are parallel), gate, up, their biases, down, its bias. Rows that the config does not have are
// absent, as is a tied head. A norm's bias follows its gain. q, k and v are adjacent in memory, as
// are gate and up, and their biases, so that each set is one matrix of stacked rows. Names are
// Hugging Face's for Llama, extended where Llama has no such parameter: "….bias",
// "model.embed_positions.weight", "….self_attn.relative_attention_bias.weight" (H, buckets), which
// is T5's transposed.
std::vector<ParamSpec> model_params(const ModelConfig& config);

// Returns the sum of the table's elements: 6,738,415,616 for llama2-7b.
int64_t parameter_count(const std::vector<ParamSpec>& table);

// The layout of a block with bf16 matrices: rows in the table's order, without gaps except before
// fp32 rows, which are aligned.
struct RoundedParams {
  std::vector<int64_t> offsets;  // by row, in bytes
  int64_t bytes = 0;             // total
};
RoundedParams rounded_params(const std::vector<ParamSpec>& table);
// Converts a flat fp32 block in place: rounded rows never begin after the fp32 ones.
void round_in_place(const std::vector<ParamSpec>& table, float* block);

// Initial values: value i of parameter p depends only on (seed, p's name, i), so that a rank draws
// only what it stores. The rule is MaxText's: matrices are normal with std 1/sqrt(fan_in) or
// init_std (embeddings: embedding_init_std), learned positions have std 1 or init_std, norms
// multiply by one, biases are zero. praxis's rules for GLaM: relative biases have std 1 / sqrt(H
// buckets); if query_scale replaces 1 / sqrt(h), the std of the queries compensates for it.
// init_part() writes the elements of `box` densely; init_params() writes the whole block.
// Returns the stream of a kNormal parameter: value i is the tensor's element i.
NormalStream initial_values(const ParamSpec& spec, uint64_t seed);
void init_part(const ParamSpec& spec, uint64_t seed, const TensorBox& box, float* out);
void init_params(const std::vector<ParamSpec>& table, uint64_t seed, float* block);

}  // namespace muster::trainer
