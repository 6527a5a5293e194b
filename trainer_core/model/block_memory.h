// The memory locations of the parameters and gradients of each block (embedding, layer or end of
// the model) during a pass. Parameters that the rank stores alone are used in place, in the flat
// blocks of its parameters and gradients. Parameters whose storage several ranks share (a bucket
// with a group of more than one rank) are gathered, completely and in the bucket's type, into a
// buffer called a slot. Their gradients are summed up in another slot and then reduce-scattered.
// Parameters that are stored in another type than passes read are converted into slots; their
// gradients are used in place. The key zero_stage determines which blocks share a slot:
//
//   zero_stage   weights                         gradients
//   3            slots shared by blocks          slots shared by blocks
//   2            one slot per block              slots shared by blocks
//   1            one slot per block              one slot per block
//
// A block's own slot holds its weights or gradients for the whole step.
//
// The stages are those of ZeRO (Rajbhandari et al., 2020): stage 1 shards the optimizer state
// permanently, stage 2 also the gradients, stage 3 also the parameters.
//
// Slots are shared as follows. The weights of layers alternate between two slots, so that one is
// filled while the other is used. The embedding and the last block (final norm and head) share a
// slot. If the embedding is tied, the last block has its own slot, because the head reads the
// embedding at the same time. The gradients of all blocks alternate between two slots. The
// exception is a tied embedding that both ends of a pipeline use: each end sums its part in a
// separate slot, and both ends scatter the sum together after all passes of the step.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "trainer_core/base/memory_plan.h"
#include "trainer_core/model/rank_part.h"
#include "trainer_core/model/shard_layout.h"

namespace muster::trainer {

// A position in a buffer of the plan.
struct BufferLocation {
  BufferId buffer;
  int64_t offset = 0;  // bytes
};

// The locations of a bucket.
struct BucketMemory {
  BufferLocation weights;
  BufferLocation gradients;  // fp32
};

// The locations of all buckets, and the slots of all blocks.
struct BlockMemory {
  std::vector<BucketMemory> buckets;  // in the order of Sharding::layout.buckets()
  // In the order of Sharding::frozen.buckets() and Sharding::quantized.buckets(); no gradients.
  std::vector<BucketMemory> frozen;
  std::vector<BucketMemory> quantized;
  // The slot of each block. Blocks with the same slot share memory. Unspecified for blocks that
  // have no bucket in a slot.
  std::vector<size_t> weight_slot;
  std::vector<size_t> gradient_slot;
};

// The parameters that this rank stores or shares with other ranks, and the part of the model that
// it computes.
struct Sharding {
  ShardLayout layout = ShardLayout::whole({});  // the parameters that are trained
  // The frozen parameters, and those that are stored in blocks; empty if there are none.
  ShardLayout frozen = ShardLayout::whole({});
  ShardLayout quantized = ShardLayout::whole({});
  int32_t zero_stage = 3;
  RankPart part{};
  // Whether there is a second copy of the trained parameters, those of a reference model.
  bool has_reference = false;

  // Returns whether any bucket is gathered from several ranks.
  bool shares() const {
    return has_bucket([](const ParamBucket& bucket) { return bucket.group_size > 1; });
  }
  // Returns whether passes read copies of any bucket, which ParameterBlocks makes.
  bool copies() const {
    return has_bucket([](const ParamBucket& bucket) { return bucket.is_copied; });
  }
  // Return whether a pass reads a copy of a bucket of the block, and whether the first and the last
  // stage of a pipeline share a bucket of the block.
  bool copies(size_t block) const {
    return layout.copies(block) || frozen.copies(block) || quantized.copies(block);
  }
  bool is_of_both_ends(size_t block) const {
    return layout.is_of_both_ends(block) || frozen.is_of_both_ends(block);
  }

 private:
  template <class Condition>
  bool has_bucket(const Condition& condition) const {
    return std::ranges::any_of(layout.buckets(), condition) ||
           std::ranges::any_of(frozen.buckets(), condition) ||
           std::ranges::any_of(quantized.buckets(), condition);
  }
};

// Adds the slots to `plan` and returns all locations. `params`, `grads` and `frozen` are the flat
// blocks of the rank: trained parameters, gradients, frozen ones. `tied`: the head uses the
// embedding's matrix. Without `training` there are no slots for gradients.
BlockMemory plan_blocks(const Sharding& sharding, bool tied, bool training, BufferId params,
                        BufferId grads, BufferId frozen, MemoryPlan& plan);

// Returns the number of elements of the bucket, including its padding.
inline int64_t padded_elements(const ParamBucket& bucket) {
  return bucket.shard_elements * bucket.group_size;
}

}  // namespace muster::trainer
