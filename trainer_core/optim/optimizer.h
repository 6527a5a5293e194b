// The optimizers: their state, and their updates of parameters from gradients. The memory plan,
// checkpoints and messages between ranks use only the table of state tensors, so they do not depend
// on the optimizer.
//
// The formulas below use: parameter p, gradient g (after scaling by grad_scale), update number t
// (from 1), learning rate lr, weight decay wd, and b1, b2, eps, eps_root of OptimizerConfig.
//
//   adamw      Loshchilov and Hutter, "Decoupled weight decay regularization" (2019), optax.adamw.
//              State m, v.   m = b1 m + (1 - b1) g     v = b2 v + (1 - b2) g²
//              p -= lr (m / (1 - b1^t) / (sqrt(v / (1 - b2^t) + eps_root) + eps) + wd p)
//              A bf16 m (mu_dtype=bfloat16) is rounded after p is updated, as in optax: to
//              nearest, or stochastically. The random words depend on the seed, t and the element's
//              offset in the rank's block, so rounding is the same after a restart, but not on
//              another mesh.
//   adam_pax   praxis' sharded_adam. State m, v. The decay rates include the bias correction:
//              b(t) = b (1 - b^(t-1)) / (1 - b^t)
//              m = b1(t) m + (1 - b1(t)) g     v = b2(t) v + (1 - b2(t)) g²
//              u = m / (sqrt(v + eps_root) + eps)
//              p -= lr (u / max(1, rms(u) / adam_clip_threshold) + wd p)
//              The update is clipped only if the threshold is above 0. Stored moments are
//              bias-corrected, unlike those of adamw. praxis replaces an infinite gradient by NaN;
//              this trainer does not apply a step that is not finite (train.h).
//   sgd        optax.sgd without momentum. No state.   p -= lr g
//   adafactor  Shazeer and Stern, "Adafactor" (2018), with optax.adafactor's defaults.
//              d = 1 - t^-0.8 and a = g² + 1e-30.
//              A matrix (R, C) with R, C >= 128 has the state v_row (R), v_col (C):
//                v_row = d v_row + (1 - d) mean over columns(a)
//                v_col = d v_col + (1 - d) mean over rows(a)
//                u = g / sqrt(v_row v_col / mean(v_row))
//              Another tensor has the state v:   v = d v + (1 - d) a     u = g / sqrt(v)
//              Then p -= lr max(rms(p), 1e-3) u / max(1, rms(u))
//
// Parameters may be stored as bf16. An update is computed in fp32 from the stored value and rounded
// once, to nearest, ties to even. Moments are fp32 unless mu_dtype states otherwise. optax, in
// contrast, then computes the update in bf16 and stores v in bf16.
//
// rms is the root mean square over one parameter of the ParamSpec table, however it is sharded.
// adamw does not decay parameters whose names match adamw_mask.
//
// A rank updates its shards (model/shard_layout.h) and stores the state of their elements. The
// factors of Adafactor (v_row, v_col) are small, so each rank with a part of a matrix stores them
// completely. Sums over a tensor are added over the ranks that store parts of the tensor.
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

// The scalars of an update.
struct UpdateStep {
  double learning_rate = 0;
  // Factor by which every gradient is multiplied first: the clipping factor / total weight.
  double grad_scale = 1;
  int64_t t = 1;      // number of the update, from 1
  uint64_t seed = 0;  // seed of stochastic rounding
};

// Flat blocks in the memory of the backend. `params` and `grads` have the layout of the rank's flat
// block of shards (ShardLayout).
struct UpdateBlocks {
  Tensor params;           // in the layout's stored type
  std::span<float> grads;  // may be overwritten: some optimizers store the update there
  // The optimizer's state, with the layout of Optimizer::state(); a float has two bf16 elements.
  // Zeros before the first update.
  std::span<float> state;

  UpdateBlocks(const Tensor& parameters, std::span<float> gradients, std::span<float> moments)
      : params(parameters), grads(gradients), state(moments) {}
  UpdateBlocks(std::span<float> parameters, std::span<float> gradients, std::span<float> moments)
      : UpdateBlocks(Tensor::f32(parameters.data(), {static_cast<int64_t>(parameters.size())}),
                     gradients, moments) {}
};

// Adds partial sums of tensors over ranks.
class SumExchange {
 public:
  virtual ~SumExchange() = default;
  // Replaces each of `sums` by its sum over the ranks of this rank's group along the axes `group`.
  // All members must call it in the same order and with equally many sums; calls for several groups
  // are in the order of GroupAxes. Returns the errors of the group.
  virtual absl::Status add_up(const GroupAxes& group, std::span<double> sums) = 0;
};

// An optimizer for the shards of one rank. Called by one thread at a time.
class Optimizer {
 public:
  // Makes the optimizer of a config. Requires a valid config (train_config.h).
  static std::unique_ptr<Optimizer> make(const OptimizerConfig& config, ShardLayout layout);
  virtual ~Optimizer() = default;

  std::string_view name() const { return kOptimizerNames[static_cast<size_t>(type_)]; }
  // Returns the state tensors, whose names are "<kind>.<parameter>".
  const ShardedTensors& state() const { return state_; }
  // Returns the size of the rank's state block, in elements of 4 bytes.
  int64_t state_elements() const { return state_elements_; }

  // Updates all parameters once. `exchange` may be null if no other rank has a part of this rank's
  // tensors. Returns the errors of `exchange`; parameters and state are then partially updated.
  absl::Status update(Ops& ops, const UpdateStep& step, const UpdateBlocks& blocks,
                      SumExchange* exchange = nullptr);

 protected:
  Optimizer(OptimizerType type, ShardLayout layout) : layout_(std::move(layout)), type_(type) {}

  // Adds state with the layout of the parameters: one element of `dtype` (fp32 or bf16) per
  // parameter element. Returns its offset in the state block, in elements of `dtype`. `what` is the
  // kind in the names of the state's tensors.
  int64_t add_state_like_parameters(const std::string& what, DType dtype = DType::kF32);

  // Implements update().
  virtual absl::Status apply(Ops& ops, const UpdateStep& step, const UpdateBlocks& blocks,
                             SumExchange* exchange) = 0;

  const ShardLayout layout_;
  ShardedTensors state_;
  int64_t state_elements_ = 0;

 private:
  OptimizerType type_;
};

// Returns the factor that reduces the gradient's global norm to the threshold; 1 if the norm is
// below the threshold or the threshold is 0 (no clipping).
double clip_factor(double global_norm, double threshold);

}  // namespace muster::trainer
