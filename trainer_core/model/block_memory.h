// The places in a rank's memory at which each block's parameters are read and its gradients
// written. Parameters that the rank stores alone are used in place, in the flat blocks of its
// parameters and gradients. Those that it shares with other ranks (a bucket of more than one rank)
// are gathered into slots, whole and in the bucket's type, and their gradient is completed in a
// slot before it is reduce-scattered. Those that it stores in another type than passes read are
// converted into slots; their gradients are used in place:
//
//   zero_stage   weights                         gradients
//   3            slots shared by blocks          slots shared by blocks
//   2            a slot per block, for a step    slots shared by blocks
//   1            a slot per block, for a step    a slot per block, for a step
//
// The stages are ZeRO's (Rajbhandari et al., 2020): the optimizer state is sharded permanently,
// then gradients, then parameters, too.
//
// Weights of layers alternate between two slots, so that one is filled while the other is used. The
// embedding and the last block (final norm and head) share a slot. If the embedding is tied, the
// last block has its own slot, because the head reads the embedding at the same time. Gradients of
// all blocks alternate between two slots. The exception is a tied embedding on both ends of a
// pipeline: each end sums its part in a slot of its own, and both scatter it together after all
// passes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "trainer_core/base/memory_plan.h"
#include "trainer_core/model/rank_part.h"
#include "trainer_core/model/shard_layout.h"

namespace muster::trainer {

struct BufferLocation {
  BufferId buffer;
  int64_t offset = 0;  // bytes
};

struct BucketMemory {
  BufferLocation weights;
  BufferLocation gradients;  // fp32
};

struct BlockMemory {
  std::vector<BucketMemory> buckets;  // in the order of ShardLayout::buckets()
  // Slot per block: blocks with the same slot share memory. Undefined for a block that has no
  // bucket in a slot.
  std::vector<size_t> weight_slot;
  std::vector<size_t> gradient_slot;
};

// The parameters that ranks share and the way they share them, and the part that this rank
// computes.
struct Sharding {
  ShardLayout layout = ShardLayout::whole({});
  int32_t zero_stage = 3;
  RankPart part{};

  // Whether any bucket is gathered.
  bool shares() const {
    return std::ranges::any_of(layout.buckets(),
                               [](const ParamBucket& bucket) { return bucket.group_size > 1; });
  }
  // Whether passes read copies of any bucket, which ParameterBlocks makes.
  bool copies() const {
    return std::ranges::any_of(layout.buckets(),
                               [](const ParamBucket& bucket) { return bucket.is_copied; });
  }
};

// Adds the slots to `plan`. `params` and `grads` are the flat blocks of what the rank stores;
// `tied`: the head uses the embedding. Without `training` there are no gradients.
BlockMemory plan_blocks(const Sharding& sharding, bool tied, bool training, BufferId params,
                        BufferId grads, MemoryPlan& plan);

// Returns the number of elements of the bucket, including its padding.
inline int64_t padded_elements(const ParamBucket& bucket) {
  return bucket.shard_elements * bucket.group_size;
}

}  // namespace muster::trainer
