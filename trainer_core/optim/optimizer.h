// The optimizers: their state per parameter, and how they update parameters from gradients. The
// table of state tensors drives the memory plan, checkpoints, and messages between ranks, which do
// not depend on the optimizer otherwise.
//
// For parameter p with gradient g (already scaled) at update t (from 1), rate lr, weight decay wd:
//
//   adamw      Loshchilov and Hutter, "Decoupled weight decay regularization" (2019), optax.adamw.
//              State m, v.   m = b1 m + (1 - b1) g     v = b2 v + (1 - b2) g²
//              p -= lr (m / (1 - b1^t) / (sqrt(v / (1 - b2^t) + eps_root) + eps) + wd p)
//              With mu_dtype=bfloat16, as in optax, m is rounded after p is updated: to nearest, or
//              stochastically with random words from the seed, t and the element's offset in the
//              rank's block (so another mesh rounds other elements up; a restart the same ones).
//   adam_pax   praxis' sharded_adam. State m, v. Bias correction is in the decays:
//              b(t) = b (1 - b^(t-1)) / (1 - b^t)
//              m = b1(t) m + (1 - b1(t)) g     v = b2(t) v + (1 - b2(t)) g²
//              u = m / (sqrt(v + eps_root) + eps)
//              p -= lr (u / max(1, rms(u) / adam_clip_threshold) + wd p)
//              Clips only if the threshold is above 0. Stored moments are bias-corrected, unlike
//              adamw's. praxis turns an infinite gradient into NaN; here a step that is not finite
//              is not applied at all (train.h).
//   sgd        optax.sgd without momentum. No state.   p -= lr g
//   adafactor  Shazeer and Stern, "Adafactor" (2018), with optax.adafactor's defaults.
//              With d = 1 - t^-0.8 and a = g² + 1e-30:
//              a matrix (R, C) with R, C >= 128 has state v_row (R), v_col (C):
//                v_row = d v_row + (1 - d) mean over columns(a)
//                v_col = d v_col + (1 - d) mean over rows(a)
//                u = g / sqrt(v_row v_col / mean(v_row))
//              another tensor has state v:   v = d v + (1 - d) a     u = g / sqrt(v)
//              p -= lr max(rms(p), 1e-3) u / max(1, rms(u))
//
// Parameters may be stored as bf16. An update is computed in fp32 from the stored value and rounded
// to it once, to nearest, ties to even; moments stay fp32 unless mu_dtype states otherwise. optax
// computes it in bf16 then, and stores v in bf16.
//
// rms covers one row of the ParamSpec table, however it is sharded. adamw does not decay parameters
// whose name adamw_mask matches.
//
// A rank updates its shards (model/shard_layout.h) and stores the state of their elements.
// Adafactor's factors are small: each rank with a part of a matrix stores all of them. Sums over
// tensors are added over the ranks that store them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/status.h>

#include "trainer_core/base/tensor_box.h"
#include "trainer_core/base/train_config.h"
#include "trainer_core/model/shard_layout.h"
#include "trainer_core/ops/ops.h"

namespace muster::trainer {

struct UpdateStep {
  double learning_rate = 0;
  double grad_scale =
      1;              // multiplies every gradient first: 1 / total weight, and the clipping factor
  int64_t t = 1;      // counts updates from 1
  uint64_t seed = 0;  // of stochastic rounding
};

// Flat blocks in the backend's memory; the first two have the layout of the rank's flat block of
// shards.
struct UpdateBlocks {
  // The parameters in the layout's stored type.
  Tensor params;
  // May be overwritten: some optimizers leave the update there.
  std::span<float> grads;
  // Laid out by Optimizer::state(), two bf16 elements per fp32 element; zeros before the first
  // update.
  std::span<float> state;

  UpdateBlocks(const Tensor& parameters, std::span<float> gradients, std::span<float> moments)
      : params(parameters), grads(gradients), state(moments) {}
  UpdateBlocks(std::span<float> parameters, std::span<float> gradients, std::span<float> moments)
      : UpdateBlocks(Tensor::f32(parameters.data(), {static_cast<int64_t>(parameters.size())}),
                     gradients, moments) {}
};

// Adds per-tensor partial sums over ranks.
class SumExchange {
 public:
  virtual ~SumExchange() = default;
  // Adds each of `sums` over this rank's group `group`. Its members call it in the same order with
  // equally many sums, and for one group after the other in the order of GroupAxes. Returns the
  // group's errors.
  virtual absl::Status add_up(const GroupAxes& group, std::span<double> sums) = 0;
};

// One thread at a time.
class Optimizer {
 public:
  // Requires a valid config (train_config.h).
  static std::unique_ptr<Optimizer> make(const OptimizerConfig& config, ShardLayout layout);
  virtual ~Optimizer() = default;

  std::string_view name() const { return kOptimizerNames[static_cast<size_t>(type_)]; }
  // The state tensors, named "<kind>.<parameter>".
  const ShardedTensors& state() const { return state_; }
  int64_t state_elements() const {
    return state_elements_;
  }  // of fp32's size, of the rank's state block

  // Updates all parameters once. `exchange` may be null if no other rank has a part of its tensors.
  // After an error, which is the exchange's, parameters and state are partially updated.
  absl::Status update(Ops& ops, const UpdateStep& step, const UpdateBlocks& blocks,
                      SumExchange* exchange = nullptr);

 protected:
  Optimizer(OptimizerType type, ShardLayout layout) : layout_(std::move(layout)), type_(type) {}

  // Adds one element per parameter element, in a block with the parameters' layout. Returns the
  // block's offset, in elements of its type, fp32 or bf16.
  int64_t add_state_like_parameters(const std::string& what, DType dtype = DType::kF32);

  virtual absl::Status apply(Ops& ops, const UpdateStep& step, const UpdateBlocks& blocks,
                             SumExchange* exchange) = 0;

  const ShardLayout layout_;
  ShardedTensors state_;
  int64_t state_elements_ = 0;

 private:
  OptimizerType type_;
};

// Returns the factor that reduces the global norm to the threshold: 1 if it is below or clipping is
// off.
double clip_factor(double global_norm, double threshold);

}  // namespace muster::trainer
