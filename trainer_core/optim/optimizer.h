// The optimizers: what state each keeps for each parameter, and how it changes parameters by gradients. The table of state
// tensors drives the memory plan, checkpoints, and what ranks send each other; nothing else knows which optimizer it is.
//
// For parameter p with gradient g (already scaled) at update t (from 1), rate lr, weight decay wd:
//
//   adamw      Loshchilov and Hutter, "Decoupled weight decay regularization" (2019), as optax.adamw.
//              State m, v.   m = b1 m + (1 - b1) g     v = b2 v + (1 - b2) g²
//              p -= lr (m / (1 - b1^t) / (sqrt(v / (1 - b2^t) + eps_root) + eps) + wd p)
//              With mu_dtype=bfloat16, as optax has it, m is rounded once p is updated: to the nearest, or stochastically by random words of
//              the seed, t and the number's place in the rank's block (so another mesh rounds other numbers up; a restart, the same ones).
//   adam_pax   praxis' sharded_adam. State m, v. The correction of the bias is in the decays: b(t) = b (1 - b^(t-1)) / (1 - b^t)
//              m = b1(t) m + (1 - b1(t)) g     v = b2(t) v + (1 - b2(t)) g²     u = m / (sqrt(v + eps_root) + eps)
//              p -= lr (u / max(1, rms(u) / adam_clip_threshold) + wd p), the bound only where the threshold is above 0.
//              Moments are stored corrected, so that they are not adamw's. praxis turns an infinite gradient into NaN;
//              here a step that is not finite is not applied at all (train.h).
//   sgd        optax.sgd without momentum. No state.   p -= lr g
//   adafactor  Shazeer and Stern, "Adafactor" (2018), with optax.adafactor's defaults. With d = 1 - t^-0.8 and a = g² + 1e-30:
//              a matrix (R, C) with R, C >= 128 has state v_row (R), v_col (C):
//                v_row = d v_row + (1 - d) mean over columns(a)     v_col = d v_col + (1 - d) mean over rows(a)
//                u = g / sqrt(v_row v_col / mean(v_row))
//              another tensor has state v:   v = d v + (1 - d) a     u = g / sqrt(v)
//              p -= lr max(rms(p), 1e-3) u / max(1, rms(u))
//
// rms is over one row of the ParamSpec table, whoever stores what of it. adamw decays no parameter whose name adamw_mask matches.
//
// A rank updates its shards (model/shard_layout.h) and keeps the state of their elements; of Adafactor's factors, which are small,
// each rank that has a part of a matrix keeps all. Sums over whole tensors are added up over the ranks that store them.
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
  uint64_t seed = 0;  // of what is rounded by chance
};

// Flat blocks in the backend's memory, the first two laid out as the rank's flat block of shards.
struct UpdateBlocks {
  std::span<float> params;
  std::span<float> grads;  // may be overwritten: some optimizers leave the update there
  std::span<float>
      state;  // laid out by Optimizer::state(), tensors of bf16 two numbers to an element; zeros before the first update
};

// Adds up over ranks what each has of a sum over a tensor.
class SumExchange {
 public:
  virtual ~SumExchange() = default;
  // Each of `sums` over this rank's group of `group`. Its members call it in the same order with as many sums, and one after the
  // other for groups in the order of GroupAxes. The group's errors.
  virtual absl::Status add_up(const GroupAxes& group, std::span<double> sums) = 0;
};

// One thread at a time.
class Optimizer {
 public:
  // The config is valid (train_config.h).
  static std::unique_ptr<Optimizer> make(const OptimizerConfig& config, ShardLayout layout);
  virtual ~Optimizer() = default;

  std::string_view name() const { return kOptimizerNames[static_cast<size_t>(type_)]; }
  // Tensors are named "<what>.<parameter>".
  const ShardedTensors& state() const { return state_; }
  int64_t state_elements() const {
    return state_elements_;
  }  // of fp32's size, of the rank's state block

  // One update of all parameters. `exchange` may be null where no other rank has a part of one of its tensors. After an error,
  // which is the exchange's, parameters and state are neither those before nor those after it.
  absl::Status update(Ops& ops, const UpdateStep& step, const UpdateBlocks& blocks,
                      SumExchange* exchange = nullptr);

 protected:
  Optimizer(OptimizerType type, ShardLayout layout) : layout_(std::move(layout)), type_(type) {}

  // One number for each parameter, in a block of its own that is laid out as the parameters'; returns where it begins, in numbers of
  // its type, fp32 or bf16.
  int64_t add_state_like_parameters(const std::string& what, DType dtype = DType::kF32);

  virtual absl::Status apply(Ops& ops, const UpdateStep& step, const UpdateBlocks& blocks,
                             SumExchange* exchange) = 0;

  const ShardLayout layout_;
  ShardedTensors state_;
  int64_t state_elements_ = 0;

 private:
  OptimizerType type_;
};

// The factor that brings the global norm down to the threshold: 1 when it is below or clipping is
// off.
double clip_factor(double global_norm, double threshold);

}  // namespace muster::trainer
