// MaxText's learning-rate schedule: linear warm-up, cosine decay, then zero.
#pragma once

#include <cstdint>

#include "trainer_core/base/train_config.h"

namespace muster::trainer {

// The rate of step `step` (from 0). With T = schedule_steps, w = int(T * warmup_steps_fraction), c = T - w:
//
//   step < w:       lr * step / w                                   (step 0 has rate 0)
//   w <= step < T:  lr * a + lr * final_fraction * (1 - a), where p = (step - w) / c and a = (cos(pi p) + 1) / 2
//   step >= T:      0
double learning_rate(const OptimizerConfig& config, int64_t step);

}  // namespace muster::trainer
