// Learning-rate schedules: MaxText's (create_learning_rate_schedule) and Pax's
// (praxis/schedules.py, LinearRampup…Decay).
#pragma once

#include <cstdint>

#include "trainer_core/base/train_config.h"

namespace muster::trainer {

// Returns the rate of step `step` (from 0). With lr = learning_rate, f = final_fraction, T =
// schedule_steps, w = warmup_steps, s = decay_start, e = decay_end, D = e - s:
//
//   step < w, all schedules:     lr * step / w                                 (step 0 has rate 0)
//
//   cosine (MaxText):            w <= step < T: lr * c(p, f), p = (step - w) / (T - w); then 0
//   constant:                    lr
//   wsd (MaxText; Hu et al., "MiniCPM", 2024):
//                                lr until s = T - D
//                                s <= step < e = T: lr * (1 - p (1 - f)) or lr * c(p, f),
//                                  p = (step - s) / (D - 1), and 1 if D is 1; then 0
//   linear_rampup_cosine_decay (Pax):
//                                lr until s
//                                s <= step < e: lr * c(p, f), p = (step - s) / (e - s); then lr * f
//   linear_rampup_exponential_decay (Pax):
//                                lr until s
//                                s <= step < e: lr * f^p, the same p; then lr * f
//
// where c(p, f) = a + f (1 - a) and a = (1 + cos(pi p)) / 2. Since January 2026 MaxText's cosine
// has p = (step - w) / (T - w - 1).
double learning_rate(const OptimizerConfig& config, int64_t step);

}  // namespace muster::trainer
