// FLOPs of a training step as MaxText counts them (maxtext_utils.py,
// calculate_tflops_training_per_device): per device, forward and backward, without recomputation.
#pragma once

#include <cstdint>

#include "trainer_core/base/train_config.h"

namespace muster::trainer {

// In TFLOP per step and device.
struct StepTflops {
  double learnable = 0;  // matmuls with weights
  // Scores and weighted sums, as if not causal: what MaxText's 2024 versions report.
  double attention = 0;
  double attention_causal = 0;  // half of `attention`: MaxText since July 2025

  double total() const { return learnable + attention; }
  double total_causal() const { return learnable + attention_causal; }
};

StepTflops step_tflops(const TrainConfig& config);

}  // namespace muster::trainer
