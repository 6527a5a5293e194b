// What a pass over the model asks of whoever keeps its parameters: each block's weights before they are read, and a place for
// its gradients. On one rank, and wherever all ranks hold all parameters, there is nothing to do: weights and gradients lie in
// the flat blocks, and nothing is moved. Where ranks share the storage, blocks are gathered before their use and their
// gradients scattered behind it (parallel/sharded_parameters.h). Blocks are numbered as ShardLayout::blocks() has them.
//
// A pass goes   [prefetch(b)] acquire(b) … reads … release(b)   for each use of a block, and in its backward part
// begin_gradient(b) … writes … gradient_done(b)   for each part of the block's gradient that it makes. Where weights and
// gradients are is the plan's (block_memory.h); nothing here returns an address.
//
// Failures are kept: once broken(), every call returns at once, what the pass computes is worthless, and it ends as soon as it
// can. Its caller asks the implementation why. One thread, the pass's.
#pragma once

#include <cstddef>

#include "trainer_core/ops/expert_ops.h"

namespace muster::trainer {

class ParameterBlocks {
 public:
  virtual ~ParameterBlocks() = default;

  // The block will be acquired soon, after what lies in its place has been released.
  virtual void prefetch(size_t block) = 0;
  // The same of a block that the next pass begins with, for which nothing is given up: it may wait for its pass where its place is
  // not free yet.
  virtual void expect(size_t block) = 0;
  // Returns when the block's weights are in their place, where they stay until it is released. Not between acquire and release.
  virtual void acquire(size_t block) = 0;
  virtual void release(size_t block) = 0;

  // Returns when the place of the block's gradient is free. The pass would write there (kNo) or add to what earlier passes, or
  // earlier parts of this one, have left (kYes); it does what is returned, which is kNo where their sum is kept elsewhere.
  virtual Accumulate begin_gradient(size_t block, Accumulate wanted) = 0;
  // This part is complete.
  virtual void gradient_done(size_t block) = 0;

  virtual bool broken() const = 0;
};

// All parameters are where they are read, and gradients stay where they are written.
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
