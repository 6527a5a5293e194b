// The address of each parameter and gradient in the arena. Internal to the source files of the
// transformer.
#pragma once

#include <array>
#include <vector>

#include "trainer_core/model/transformer.h"

namespace muster::trainer {

// The adapters of a GEMM, or their gradients (base/lora.h).
struct Transformer::Adapters {
  // One adapted projection, whose output has rows of B from row first_row on.
  struct Projection {
    int64_t first_row = 0;
    Tensor b;  // (out of the projection, rank)
  };
  Tensor a;  // (R, in): the matrices A of all adapted projections
  std::vector<Projection> projections;
  bool is_whole = false;  // the GEMM is a single projection
};

// The parameters of a layer, or their gradients. Parameters that are adjacent in memory are stacked
// in one tensor. A tensor that the model lacks has no data.
struct Transformer::LayerWeights {
  NormWeights norm1;  // (d)
  Tensor qkv;         // ((H + 2K) h, d)
  Tensor qkv_bias;    // ((H + 2K) h)
  // If the plan stacks qkv (TransformerPlan::stacks_qkv), qkv and qkv_bias have only the queries,
  // and these two have the keys and values:
  Tensor kv;            // (2K h, d)
  Tensor kv_bias;       // (2K h)
  Tensor out;           // (d, H h)
  Tensor out_bias;      // (d)
  Tensor relative;      // (H, buckets)
  NormWeights norm2;    // (d)
  Tensor gate_up;       // (2m, d); without a gate (m, d)
  Tensor gate_up_bias;  // (2m); without a gate (m)
  Tensor down;          // (d, m)
  Tensor down_bias;     // (d)
  // In layers with experts, instead of gate_up and down. E' is this rank's number of the E experts:
  Tensor router;        // (E, d)
  Tensor experts_in;    // (E', 2m, d); without a gate (E', m, d)
  Tensor experts_down;  // (E', d, m)
  std::array<Adapters, kDenseProducts> adapters;
};

// The parameters of the model, or their gradients.
struct Transformer::Weights {
  enum class What : uint8_t { kWeights, kReference, kGradients };
  Weights(const TransformerPlan& plan, const Arena& arena, What what);

  Tensor embedding;  // (V, d)
  Tensor positions;  // (P, d) for P learned positions
  std::vector<LayerWeights> layers;
  NormWeights final_norm;  // (d)
  Tensor head;             // (V, d); the embedding if tied
};

// Returns whether the model has this tensor.
inline bool exists(const Tensor& tensor) { return tensor.data != nullptr; }

// Returns a view of a buffer of int32.
inline Tensor view_i32(const Arena& arena, BufferId id, int64_t elements) {
  return Tensor::i32(static_cast<int32_t*>(arena.buffer(id)), {elements});
}

}  // namespace muster::trainer
