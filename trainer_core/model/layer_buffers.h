// The buffers of one layer of a transformer's step. transformer_plan.h plans them; transformer.h
// defines the dimensions.
#pragma once

#include <cstdint>
#include <vector>

#include "trainer_core/base/memory_plan.h"
#include "trainer_core/ops/ops.h"

namespace muster::trainer {

// A tensor of a layer that is saved in host memory between the forward and the backward pass.
struct OffloadedTensor {
  BufferId device;  // the buffer that operations use; shared by all layers
  BufferId host;    // the copy of this layer, of category kOffloaded
  int64_t elements = 0;
  DType dtype = DType::kF32;
  // True: a tensor of attention; false: of the MLP. Tensors of the MLP are fetched later than those
  // of attention, because the exchange of attention also uses the MLP's buffers.
  bool belongs_to_attention = true;
};

// The tensors of a layer while it is computed. A tensor that is saved on the device
// (LayerPlacements) has a buffer of its own for each layer; a tensor that is recomputed, or fetched
// from the host, has one buffer that all layers share.
struct LayerBuffers {
  BufferId input;    // (T', d) the residual stream at the layer's entrance
  BufferId stats1;   // NormShape::stats(T')
  BufferId normed1;  // (T', d)
  BufferId qkv;      // (T, (H + 2K) h) after RoPE, as ModelExchange::to_heads has left it
  BufferId context;  // (T, H h) attention's output
  BufferId lse;      // (B, H, S), for the heads and positions of attended_shape()
  // (T', d) the residual stream after attention. In the backward pass of a parallel block: the part
  // of normed1's gradient that comes from the MLP.
  BufferId middle;
  BufferId stats2;   // NormShape::stats(T')
  BufferId normed2;  // (T', d) the MLP's input; in a parallel block normed1
  // Tensors of the MLP. For experts they have R' rows instead of T, and m is the width of an
  // expert.
  BufferId gate_up;  // (T, 2m); without a gate (T, m); in backward its gradient
  BufferId act;      // (T, m); in backward its gradient

  // Tensors of a layer with experts; Routing describes them. Every layer has its own offsets and
  // balance, because they are read after the forward pass. T* is the number of tokens of the
  // complete sequences: more than T if ranks split sequences.
  BufferId router_probs;    // (T*, E)
  BufferId chosen_experts;  // (T*, k)
  BufferId gates;           // (T*, k)
  BufferId slots;           // (T*, k)
  BufferId density;         // (G, E)
  BufferId expert_offsets;  // (E + 1)
  BufferId balance;         // (G)
  // (E/X + 1) ExpertTraffic::own_offsets; on a single rank expert_offsets.
  BufferId own_expert_offsets;

  // Tensors that are copied to the host after the layer's forward pass, and back before its
  // backward pass. Empty for the model's last layer: its backward pass comes next, while the shared
  // buffers still contain its tensors.
  std::vector<OffloadedTensor> offloaded;
};

}  // namespace muster::trainer
