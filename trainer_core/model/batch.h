// The input of a pass over the model.
#pragma once

#include <cstdint>
#include <span>

namespace muster::trainer {

// The source of dropout masks. A mask depends on this source, on the layer, the site and the
// element, but not on how samples are divided among steps, ranks and batches.
struct DropoutSource {
  uint64_t seed = 0;
  // The index of the batch's first sequence, counted from the start of the training.
  uint64_t first_sample = 0;
  // Whether forward passes without gradients apply dropout, too: they then compute the values of
  // the pass with gradients.
  bool in_forward = false;
};

// A micro-batch. `tokens` and `targets` are (B, S) ids below V. `weights` is (B, S): 1 if the
// target counts in the loss, 0 if it does not. The S positions are the plan's own_positions().
// `dropout` is used only if the model has dropout.
struct Batch {
  std::span<const int32_t> tokens;
  std::span<const int32_t> targets;
  std::span<const float> weights;
  DropoutSource dropout = {};
  // Used only by plans with packed sequences, otherwise empty. For each token that the rank has
  // during attention (TransformerPlan::attended_shape()), the position in its sequence at which the
  // token's document begins. Documents do not attend to each other, and the positions of each
  // document begin at 0.
  std::span<const int32_t> starts = {};
  // (B, S) the weights by which routing groups share the load-balancing loss, if `weights` are not.
  // Used only by plans with a reference model (Sharding::has_reference).
  std::span<const float> routing_weights = {};
};

}  // namespace muster::trainer
