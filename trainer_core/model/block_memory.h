// Where in a rank's memory the parameters of each block are read, and where its gradients are made. What a rank stores alone lies
// in the flat blocks of its parameters and gradients, and is used there. What it shares with others (a bucket of more than one
// rank) is gathered into slots, as a whole and in the bucket's type, and its gradient is made whole before it is scattered:
//
//   zero_stage   weights                               gradients
//   3            slots that blocks take in turn        slots that blocks take in turn
//   2            each block has its own, for a step    slots that blocks take in turn
//   1            each block has its own, for a step    each block has its own, for a step
//
// The stages are ZeRO's (Rajbhandari et al., 2020): what is split for good is the optimizer's state, then gradients, then parameters.
// Layers have two slots in turn, so that one is filled while the other is computed with. The embedding and the end take turns,
// too, unless the head reads the embedding while the end's norm is there. Gradients have two slots in turn for all blocks, but that of
// a tied embedding on both ends of a pipeline: each end adds up all of its part, in a place of its own, and they scatter it
// together when all their passes are over.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "trainer_core/base/memory_plan.h"
#include "trainer_core/model/rank_part.h"
#include "trainer_core/model/shard_layout.h"

namespace muster::trainer {

struct MemoryPlace {
  BufferId buffer;
  int64_t offset = 0;  // bytes
};

struct BucketMemory {
  MemoryPlace weights;
  MemoryPlace gradients;  // fp32
};

struct BlockMemory {
  std::vector<BucketMemory> buckets;  // as ShardLayout::buckets() has them
  // Of each block: blocks with the same number lie in the same memory. Meaningless where a block is not gathered.
  std::vector<size_t> weight_slot;
  std::vector<size_t> gradient_slot;
};

// What ranks share, and how; and what this one computes.
struct Sharding {
  ShardLayout layout = ShardLayout::whole({});
  int32_t zero_stage = 3;
  RankPart part{};

  // Whether anything is gathered.
  bool shares() const {
    return std::ranges::any_of(layout.buckets(),
                               [](const ParamBucket& bucket) { return bucket.group_size > 1; });
  }
};

// Adds the slots to `plan`. `params` and `grads` are the flat blocks of what the rank stores; `tied`: the head is the embedding.
// Without `training` there are no gradients.
BlockMemory plan_blocks(const Sharding& sharding, bool tied, bool training, BufferId params,
                        BufferId grads, MemoryPlan& plan);

// Elements of the bucket with its padding.
inline int64_t padded_elements(const ParamBucket& bucket) {
  return bucket.shard_elements * bucket.group_size;
}

}  // namespace muster::trainer
