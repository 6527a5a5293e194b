// Makes the weights of each block available before a pass over the model reads them, and memory for
// its gradients before the pass writes them. If ranks share the storage of parameters, blocks are
// gathered before their use and their gradients are reduce-scattered after it
// (parallel/sharded_parameters.h). If a rank has all parameters, there is nothing to do
// (WholeBlocks): passes read and write the flat blocks directly. Blocks are numbered as in
// ShardLayout::blocks().
//
// A pass makes the first sequence of calls for each use of a block, and the backward pass makes the
// second one for each part of the block's gradient:
//
//   [prefetch(b)] acquire(b) … reads … release(b)
//   begin_gradient(b) … writes … gradient_done(b)
//
// No call returns an address: the plan determines the locations of weights and gradients
// (block_memory.h).
//
// After the first failure broken() is true, and every call returns at once. The pass then computes
// undefined values and ends as soon as it can; its caller gets the error from the implementation.
// Called on the thread of the pass only.
#pragma once

#include <cstddef>

#include "trainer_core/ops/expert_ops.h"

namespace muster::trainer {

// The parameters and gradients of one rank.
class ParameterBlocks {
 public:
  virtual ~ParameterBlocks() = default;

  // Starts to gather a block that the pass will acquire soon. Requires that no block in the same
  // slot is acquired.
  virtual void prefetch(size_t block) = 0;
  // Starts to gather the first block of the next pass, unless the slot is in use; then the next
  // pass gathers the block itself.
  virtual void expect(size_t block) = 0;
  // Blocks until the weights of the block are in its slot, where they remain until release().
  // Requires that the block is not acquired yet.
  virtual void acquire(size_t block) = 0;
  // Ends the use of a block that acquire() has made available.
  virtual void release(size_t block) = 0;

  // Blocks until the gradient slot of the block is free. `wanted` is kYes if the gradient must be
  // added to that of earlier passes or parts, kNo if it replaces them. Returns what the pass must
  // do with the slot: kNo (overwrite) if the implementation holds the sum elsewhere, otherwise
  // `wanted`.
  virtual Accumulate begin_gradient(size_t block, Accumulate wanted) = 0;
  // Hands over a complete part of the gradient.
  virtual void gradient_done(size_t block) = 0;

  // Returns whether a gather or a reduction has failed.
  virtual bool broken() const = 0;
};

// The blocks of a rank that has all parameters. All calls do nothing.
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
