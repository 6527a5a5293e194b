// The FLOPs of a training step as MaxText counts them (maxtext_utils.py,
// calculate_tflops_training_per_device): per device, for the forward and the backward pass, without
// recomputation, and for the scoring passes of preference tuning. The gradients of frozen weights
// are not computed and not counted; adapters are.
#pragma once

#include <cstdint>

#include "trainer_core/base/train_config.h"

namespace muster::trainer {

// The FLOPs of a step in TFLOP per device.
struct StepTflops {
  double learnable = 0;  // GEMMs with weights, frozen ones included
  // Attention scores and weighted sums, counted without the causal mask, as MaxText did in 2024.
  double attention = 0;
  double attention_causal = 0;  // half of `attention`, as MaxText does since July 2025

  // Return the sum, with both ways to count attention.
  double total() const { return learnable + attention; }
  double total_causal() const { return learnable + attention_causal; }
};

// Returns the FLOPs of a step of a config.
StepTflops step_tflops(const TrainConfig& config);

}  // namespace muster::trainer
