// The learning-rate schedules of MaxText (create_learning_rate_schedule) and of Pax
// (praxis/schedules.py, LinearRampup…Decay).
#pragma once

#include <cstdint>

#include "trainer_core/base/train_config.h"

namespace muster::trainer {

// Returns the learning rate of step `step` (from 0). The formulas use lr = learning_rate, f =
// final_fraction, T = schedule_steps, w = warmup_steps, s = decay_start, e = decay_end and D = e -
// s:
//
//   step < w, all schedules:     lr * step / w                                 (step 0 has rate 0)
//
//   cosine (MaxText):            w <= step < T: lr * c(p, f), p = (step - w) / (T - w); then 0
//   constant:                    lr
//   wsd (MaxText; Hu et al., "MiniCPM", 2024):
//                                lr until s = T - D
//                                s <= step < e = T: lr * (1 - p (1 - f)) or lr * c(p, f),
//                                  p = (step - s) / (D - 1), or p = 1 if D = 1; then 0
//   linear_rampup_cosine_decay (Pax):
//                                lr until s
//                                s <= step < e: lr * c(p, f), p = (step - s) / (e - s); then lr * f
//   linear_rampup_exponential_decay (Pax):
//                                lr until s
//                                s <= step < e: lr * f^p, p = (step - s) / (e - s); then lr * f
//
// Here c(p, f) = a + f (1 - a) and a = (1 + cos(pi p)) / 2. Newer versions of MaxText (since
// January 2026) use p = (step - w) / (T - w - 1) in the cosine schedule; this function does not.
double learning_rate(const OptimizerConfig& config, int64_t step);

}  // namespace muster::trainer
