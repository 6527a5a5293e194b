// Observes the values that a pass over the model computes, to find the first wrong value. Not used
// in training.
#pragma once

#include <string>

#include "trainer_core/base/tensor.h"

namespace muster::trainer {

class PassObserver {
 public:
  virtual ~PassObserver() = default;
  // Called with each value of the forward pass, in the order of computation. The names are
  // "embeddings"; for each layer "layer3.normed1", "….qkv" (after RoPE), "….context", "….middle",
  // "….normed2", "….gate_up" and "….act" (with experts "….router_probs" instead of both),
  // "….mlp_out"; then "final_normed", and for each chunk of rows "logits" and "losses". `x` is in
  // the memory of the backend and valid during the call only.
  virtual void computed(const std::string& name, const Tensor& x) = 0;
  // Called in the backward pass with the flat gradient of a parameter on this rank. Blocks are
  // visited from the last to the first, and the parameters of a block from the last to the first. A
  // tied embedding is visited twice. If gradients accumulate, the gradient includes that of earlier
  // batches.
  virtual void gradient(const std::string&, const Tensor&) {}
};

}  // namespace muster::trainer
