// What transformer.cc and transformer_backward.cc share and nobody else needs.
#pragma once

#include "trainer_core/model/transformer.h"

namespace muster::trainer {

// One layer's matrices (or their gradients), neighbours stacked.
struct Transformer::LayerParams {
  Tensor norm1;    // (d)
  Tensor qkv;      // ((H + 2K) h, d)
  Tensor out;      // (d, H h)
  Tensor norm2;    // (d)
  Tensor gate_up;  // (2m, d)
  Tensor down;     // (d, m)
};

inline Tensor view_i32(const Arena& arena, BufferId id, int64_t elements) {
  return Tensor::i32(static_cast<int32_t*>(arena.buffer(id)), {elements});
}

}  // namespace muster::trainer
