// Observes the values that a pass over the model computes: to find where values go wrong, not for
// training.
#pragma once

#include <string>

#include "trainer_core/base/tensor.h"

namespace muster::trainer {

class PassObserver {
 public:
  virtual ~PassObserver() = default;
  // Called in the order of computation: "embeddings"; for each layer "layer3.normed1", "….qkv"
  // (after RoPE), "….context", "….middle", "….normed2", "….gate_up" and "….act" (with experts
  // "….router_probs" instead), "….mlp_out"; then "final_normed", and "logits" and "losses" for each
  // chunk of rows. `x` is in the backend's memory and changes after the call.
  virtual void computed(const std::string& name, const Tensor& x) = 0;
  // Called in the backward pass with this rank's gradient of a parameter, flat: from the last block
  // to the first, and within a block from its last parameter; for a tied embedding twice. With
  // accumulation the gradient includes earlier batches.
  virtual void gradient(const std::string&, const Tensor&) {}
};

}  // namespace muster::trainer
