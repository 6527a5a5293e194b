// Somebody who looks at what a forward pass computes: for finding out where numbers go wrong, not for training.
#pragma once

#include <string>

#include "trainer_core/base/tensor.h"

namespace muster::trainer {

class ForwardObserver {
 public:
  virtual ~ForwardObserver() = default;
  // Called in the order of computation: "embeddings"; for each layer "layer3.normed1", "….qkv" (after RoPE), "….context",
  // "….middle", "….normed2", "….gate_up" and "….act" (of experts "….router_probs" instead), "….mlp_out"; then "final_normed", and "logits" and "losses" for each part of
  // the rows. `x` is in the backend's memory and changes after the call.
  virtual void computed(const std::string& name, const Tensor& x) = 0;
};

}  // namespace muster::trainer
