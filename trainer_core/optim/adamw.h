// AdamW with decoupled weight decay: Loshchilov and Hutter, "Decoupled weight decay regularization"
// (2019), as optax.adamw computes it. For parameter p with gradient g at step t (from 1):
//
//   m = b1 m + (1 - b1) g          m̂ = m / (1 - b1^t)
//   v = b2 v + (1 - b2) g²         v̂ = v / (1 - b2^t)
//   p = p - lr (m̂ / (sqrt(v̂ + eps_root) + eps) + weight_decay p)
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trainer_core/base/train_config.h"
#include "trainer_core/model/param_spec.h"
#include "trainer_core/ops/ops.h"

namespace muster::trainer {

struct AdamWBlocks {
  std::span<float> params;
  std::span<const float> grads;
  std::span<float> m;
  std::span<float> v;
};

// Applies one update to all parameters. `grad_scale` multiplies every gradient first (1/total
// weight, and the clipping factor); `t` counts updates from 1.
void adamw_update(Ops& ops, const std::vector<ParamSpec>& table, const OptimizerConfig& config,
                  double learning_rate, double grad_scale, int64_t t, const AdamWBlocks& blocks);

// The factor that brings the global norm down to the threshold: 1 when it is below or clipping is
// off.
double clip_factor(double global_norm, double threshold);

}  // namespace muster::trainer
