// The ParamSpec table: one row per parameter, in the order of memory. It drives allocation,
// initialisation, checkpoints and the optimizer, so that none of them knows the model.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer_core/base/tensor.h"
#include "trainer_core/base/train_config.h"

namespace muster::trainer {

enum class InitKind { kOnes, kNormal };

// Which mesh axis may split a dimension; data parallelism splits none.
enum class ShardAxis : uint8_t { kNone, kFsdp, kTensor };

struct ParamSpec {
  std::string name;              // Hugging Face's: "model.layers.0.self_attn.q_proj.weight"
  std::vector<int64_t> shape;    // Hugging Face's layout: (out, in) for a projection
  std::vector<ShardAxis> shard;  // one per dimension
  InitKind init = InitKind::kNormal;
  double init_std = 0;  // of kNormal
  bool decay = true;    // weight decay applies (MaxText's adamw decays every parameter)
  int64_t offset = 0;  // in elements, within the flat parameter block; rows are packed without gaps

  int64_t elements() const;
};

// The table of a Llama-2 model: embedding, layers (input norm, q, k, v, o, post-attention norm,
// gate, up, down), final norm, head (absent when tied). q, k and v are neighbours in memory, as are
// gate and up, so that each set is one matrix of stacked rows.
std::vector<ParamSpec> llama_params(const ModelConfig& config);

// Sum of the table's elements: 6,738,415,616 for llama2-7b.
int64_t parameter_count(const std::vector<ParamSpec>& table);

// Fills the flat block from the seed: value i of parameter p depends on (seed, p's name, i) alone.
// MaxText's rule: projections and embedding normal with std 1/sqrt(fan_in), norms ones.
void init_params(const std::vector<ParamSpec>& table, uint64_t seed, float* block);

}  // namespace muster::trainer
