// Shared by the transformer's source files only: the arena's addresses of each parameter and
// gradient.
#pragma once

#include <vector>

#include "trainer_core/model/transformer.h"

namespace muster::trainer {

// One layer's parameters (or their gradients), with adjacent ones stacked. Tensors that the model
// does not have have no data.
struct Transformer::LayerWeights {
  NormWeights norm1;  // (d)
  Tensor qkv;         // ((H + 2K) h, d)
  Tensor qkv_bias;    // ((H + 2K) h)
  // If the plan stacks them, qkv and qkv_bias have the queries only, and these the keys and values:
  Tensor kv;            // (2K h, d)
  Tensor kv_bias;       // (2K h)
  Tensor out;           // (d, H h)
  Tensor out_bias;      // (d)
  Tensor relative;      // (H, buckets)
  NormWeights norm2;    // (d)
  Tensor gate_up;       // (2m, d), without a gate (m, d)
  Tensor gate_up_bias;  // (2m), without a gate (m)
  Tensor down;          // (d, m)
  Tensor down_bias;     // (d)
  // Instead of gate_up and down, for this rank's E' of the E experts:
  Tensor router;        // (E, d)
  Tensor experts_in;    // (E', 2m, d), without a gate (E', m, d)
  Tensor experts_down;  // (E', d, m)
};

struct Transformer::Weights {
  enum class What : uint8_t { kWeights, kGradients };
  Weights(const TransformerPlan& plan, const Arena& arena, What what);

  Tensor embedding;  // (V, d)
  Tensor positions;  // (P, d)
  std::vector<LayerWeights> layers;
  NormWeights final_norm;  // (d)
  Tensor head;             // (V, d); the embedding if tied
};

inline bool exists(const Tensor& tensor) { return tensor.data != nullptr; }

inline Tensor view_i32(const Arena& arena, BufferId id, int64_t elements) {
  return Tensor::i32(static_cast<int32_t*>(arena.buffer(id)), {elements});
}

}  // namespace muster::trainer
