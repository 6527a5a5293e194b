// Somebody who looks at what a pass over the model computes: for finding out where numbers go wrong, not for training.
#pragma once

#include <string>

#include "trainer_core/base/tensor.h"

namespace muster::trainer {

class PassObserver {
 public:
  virtual ~PassObserver() = default;
  // Called in the order of computation: "embeddings"; for each layer "layer3.normed1", "….qkv" (after RoPE), "….context",
  // "….middle", "….normed2", "….gate_up" and "….act" (of experts "….router_probs" instead), "….mlp_out"; then "final_normed", and "logits" and "losses" for each part of
  // the rows. `x` is in the backend's memory and changes after the call.
  virtual void computed(const std::string& name, const Tensor& x) = 0;
  // Then in the backward pass: this rank's gradient of the parameter, flat, blocks from the last one on, and within one from
  // its last parameter on; of a tied embedding twice. With accumulation it has those of earlier batches, too.
  virtual void gradient(const std::string&, const Tensor&) {}
};

}  // namespace muster::trainer
