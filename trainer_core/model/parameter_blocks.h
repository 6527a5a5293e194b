// The parameters and gradients of a pass over the model: makes each block's weights available
// before they are read, and a place for its gradients. If a rank holds all parameters, there is
// nothing to do: weights and gradients are used in the flat blocks. If ranks share the storage,
// blocks are gathered before their use and their gradients reduce-scattered after it
// (parallel/sharded_parameters.h). Blocks are numbered as in ShardLayout::blocks().
//
// A pass calls, for each use of a block, and in its backward part for each part of its gradient:
//
//   [prefetch(b)] acquire(b) … reads … release(b)
//   begin_gradient(b) … writes … gradient_done(b)
//
// The plan has the addresses of weights and gradients (block_memory.h); nothing here returns one.
//
// The first failure is retained. Once broken(), every call returns at once, the pass computes
// undefined values, and it ends as soon as it can. The caller gets the error from the
// implementation. Called on the pass's thread only.
#pragma once

#include <cstddef>

#include "trainer_core/ops/expert_ops.h"

namespace muster::trainer {

class ParameterBlocks {
 public:
  virtual ~ParameterBlocks() = default;

  // Announces that the block will be acquired soon, once the blocks in its slot have been released.
  virtual void prefetch(size_t block) = 0;
  // As prefetch(), for the first block of the next pass. Releases nothing for it: if its slot is
  // not free yet, the fetch waits for its pass.
  virtual void expect(size_t block) = 0;
  // Blocks until the block's weights are in their slot, where they stay until release(). Must not
  // be called again before release().
  virtual void acquire(size_t block) = 0;
  virtual void release(size_t block) = 0;

  // Blocks until the slot of the block's gradient is free. `wanted`: the pass overwrites (kNo), or
  // adds to the gradient of earlier passes or parts (kYes). Returns what it must do: kNo if the sum
  // is kept elsewhere.
  virtual Accumulate begin_gradient(size_t block, Accumulate wanted) = 0;
  // Called when this part of the gradient is complete.
  virtual void gradient_done(size_t block) = 0;

  virtual bool broken() const = 0;
};

// All parameters are read where they are stored, and gradients stay where they are written.
class WholeBlocks final : public ParameterBlocks {
 public:
  void prefetch(size_t) override {}
  void expect(size_t) override {}
  void acquire(size_t) override {}
  void release(size_t) override {}
  Accumulate begin_gradient(size_t, Accumulate wanted) override { return wanted; }
  void gradient_done(size_t) override {}
  bool broken() const override { return false; }
};

}  // namespace muster::trainer
