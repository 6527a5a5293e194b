// The table of a model's parameters: one ParamSpec per parameter, in memory order. Allocation,
// initialization, checkpoints and the optimizer iterate over the table, so their code does not
// depend on the model.
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

// The distribution of initial values.
enum class InitKind { kZeros, kOnes, kNormal };

// The kinds of blocks. A block is the unit in which parameters are gathered if ranks share their
// storage. In the table's order: the embedding (with learned positions), each layer, and the end
// (the final norm and, unless it is tied, the head).
enum class BlockKind : uint8_t { kEmbedding, kLayer, kEnd };
// A block of the model.
struct ParamBlock {
  BlockKind kind = BlockKind::kEmbedding;
  int32_t layer = 0;  // index of the layer, for kLayer

  friend bool operator==(const ParamBlock&, const ParamBlock&) = default;
};

// The split of a parameter by tensor parallelism: along one dimension, at the boundaries of units.
// A unit is for instance one of 32 heads with 128 rows each, or one of 11,008 columns.
struct TensorSplit {
  size_t dim = 0;     // the dimension that is split
  int64_t units = 0;  // divides the dimension; 0: every rank has the whole parameter

  // Return a split of no dimension, of the rows or of the columns of a matrix.
  static TensorSplit none() { return {}; }
  static TensorSplit rows(int64_t units) { return {0, units}; }
  static TensorSplit columns(int64_t units) { return {1, units}; }
};

// The parts of a model's parameters. Frozen ones are not trained: they have no gradient and no
// optimizer state, and are not in checkpoints. kQuantized: frozen matrices that are stored in
// blocks (base/weight_blocks.h).
enum class ParamPart : uint8_t { kTrained, kFrozen, kQuantized };

// A parameter of the model. It has Hugging Face's name, such as
// "model.layers.0.self_attn.q_proj.weight", and Hugging Face's shape: (out, in) for a projection.
struct ParamSpec : TensorRow {
  ParamBlock block;
  TensorSplit split;
  int32_t expert = -1;  // index of the expert to which it belongs; -1: none
  InitKind init = InitKind::kNormal;
  double init_std = 0;  // standard deviation, for kNormal
  // Whether the parameter is an operand of a GEMM or the token table. Decoding in bf16 stores such
  // parameters in bf16 and all others in fp32.
  bool is_matrix = false;
  // If there are adapters (base/lora.h), all other parameters are frozen.
  ParamPart part = ParamPart::kTrained;

  // Returns the type of the parameter when decoding in bf16.
  DType rounded_type() const { return is_matrix ? DType::kBf16 : DType::kF32; }
};

// Returns the table of a model: embedding, learned positions, layers, final norm, head. A layer
// has: first norm, q, k, v, their biases, o, its bias, relative biases, second norm (unless the
// block is parallel), gate, up, their biases, down, its bias. The bias of a norm follows its gain.
// Parameters that the config does not use are absent; so is the head if it is tied. The matrices q,
// k and v are adjacent in memory, and so are their biases, the matrices gate and up, and their
// biases: each of these sets is used as one stacked matrix. With LoRA, the adapters follow: for
// each GEMM its adjacent matrices A, then its matrices B. Names are those of Hugging Face's
// Llama. Parameters that Llama lacks are named "….bias", "model.embed_positions.weight" and
// "….self_attn.relative_attention_bias.weight" (H, buckets); the last is the transpose of T5's.
// Those of adapters are PEFT's: "….q_proj.lora_A.weight" and "….q_proj.lora_B.weight".
std::vector<ParamSpec> model_params(const ModelConfig& config);

// Returns the parameters of a part as a table of their own.
std::vector<ParamSpec> part_of(const std::vector<ParamSpec>& table, ParamPart part);

// The GEMMs of a layer's dense projections, x wᵀ. Kernels with the same input are stacked into one
// GEMM.
enum class DenseProduct : uint8_t { kQkv, kOut, kGateUp, kDown };
constexpr size_t kDenseProducts = 4;  // per layer

// A projection that may have an adapter.
struct AdaptedProjection {
  LoraTarget target;
  std::string module;  // "model.layers.0.self_attn.q_proj"
  // The splits of the projection's output and input, which are those of B's and A's.
  TensorSplit out_split, in_split;
};
// Returns the projections of a layer's GEMM in the order of their rows, with or without adapters;
// none for the MLP of a layer with experts.
std::vector<AdaptedProjection> adapted_projections(const ModelConfig& config, int32_t layer,
                                                   DenseProduct product);

// Returns the number of elements of all parameters: 6,738,415,616 for llama2-7b.
int64_t parameter_count(const std::vector<ParamSpec>& table);

// The layout of a flat block in which matrices are bf16, for decoding. Parameters lie in the
// table's order. There are no gaps, except before fp32 parameters, which are aligned.
struct RoundedParams {
  std::vector<int64_t> offsets;  // byte offset of each parameter
  int64_t bytes = 0;             // total size
};
// Returns the layout for the parameters of `table`.
RoundedParams rounded_params(const std::vector<ParamSpec>& table);

// The functions below compute initial values. Value i of a parameter depends only on the seed, the
// parameter's name and i, so a rank can compute exactly the elements that it stores. The rules are
// MaxText's: matrices are normally distributed with the standard deviation (std) init_std or, by
// default, 1 / sqrt(fan_in); embeddings have embedding_init_std; learned positions have init_std
// or, by default, 1. The A of an adapter has the std of PEFT's uniform values, 1 / sqrt(3 fan_in),
// and B is zero. Norms multiply by one, and biases are zero. Two rules for GLaM are those of
// praxis: relative biases have the std 1 / sqrt(H * buckets), and if query_scale replaces 1 /
// sqrt(h), the std of the query projection compensates for the difference.

// Returns the stream of a kNormal parameter. Value i of the stream is element i of the tensor.
NormalStream initial_values(const ParamSpec& spec, uint64_t seed);
// Writes the initial elements of `box` densely to `out`.
void init_part(const ParamSpec& spec, uint64_t seed, const TensorBox& box, float* out);
// Writes the initial elements of all parameters to a flat block.
void init_params(const std::vector<ParamSpec>& table, uint64_t seed, float* block);

}  // namespace muster::trainer
