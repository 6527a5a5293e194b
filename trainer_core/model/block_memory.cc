#include "trainer_core/model/block_memory.h"

#include <algorithm>
#include <utility>

#include <absl/strings/str_cat.h>

namespace muster::trainer {
namespace {

enum class What { kWeights, kGradients };

// The slots for weights or gradients, each as large as the largest of its blocks.
class Slots {
 public:
  Slots(const Sharding& sharding, What what)
      : sharding_(sharding), what_(what), slot_of_(sharding.layout.blocks().size()) {}

  // Adds a slot that these blocks share.
  void add(const std::vector<size_t>& blocks) {
    size_t bytes = 0;
    for (const size_t block : blocks) {
      slot_of_[block] = bytes_.size();
      bytes = std::max(bytes, block_bytes(block));
    }
    bytes_.push_back(bytes);
  }
  // Adds a slot for each block.
  void add_each() {
    for (size_t block = 0; block < slot_of_.size(); ++block) add({block});
  }

  // Plans the slots and assigns the buckets to them.
  void place(MemoryPlan& plan, BlockMemory& memory) const {
    const bool weights = what_ == What::kWeights;
    std::vector<BufferId> ids(bytes_.size());
    for (size_t i = 0; i < bytes_.size(); ++i) {
      if (bytes_[i] == 0) continue;
      ids[i] =
          plan.add(absl::StrCat(weights ? "gathered." : "whole_gradients.", i),
                   weights ? MemoryCategory::kGathered : MemoryCategory::kGradients, bytes_[i]);
    }
    std::vector<size_t> used(slot_of_.size());
    const auto place_all = [&](const ShardLayout& layout, std::vector<BucketMemory>& locations) {
      for (size_t i = 0; i < layout.buckets().size(); ++i) {
        const ParamBucket& bucket = layout.buckets()[i];
        if (!has_slot(bucket)) continue;
        BufferLocation& location = weights ? locations[i].weights : locations[i].gradients;
        location = {ids[slot_of_[bucket.block]], static_cast<int64_t>(used[bucket.block])};
        used[bucket.block] += aligned_bytes(bytes(bucket));
      }
    };
    place_all(sharding_.layout, memory.buckets);
    if (weights) place_all(sharding_.frozen, memory.frozen);
    if (weights) place_all(sharding_.quantized, memory.quantized);
    (weights ? memory.weight_slot : memory.gradient_slot) = slot_of_;
  }

 private:
  // Returns whether the gradient of a bucket is in the slot. This includes buckets that only this
  // rank stores if other buckets of the block are scattered, so that all gradients of a block
  // accumulate in the same way.
  bool has_slot(const ParamBucket& bucket) const {
    return what_ == What::kWeights ? bucket.is_copied : sharding_.layout.gathers(bucket.block);
  }
  size_t bytes(const ParamBucket& bucket) const {
    const DType dtype = what_ == What::kWeights ? bucket.gathered : DType::kF32;
    return static_cast<size_t>(padded_elements(bucket)) * dtype_bytes(dtype);
  }
  // Returns the bytes of a block in its slot. The last bucket needs no alignment after it.
  size_t block_bytes(size_t block) const {
    size_t end = 0, begin = 0;
    const auto add_all = [&](const ShardLayout& layout) {
      for (const ParamBucket& bucket : layout.buckets()) {
        if (bucket.block != block || !has_slot(bucket)) continue;
        end = begin + bytes(bucket);
        begin += aligned_bytes(bytes(bucket));
      }
    };
    add_all(sharding_.layout);
    if (what_ == What::kWeights) add_all(sharding_.frozen);
    if (what_ == What::kWeights) add_all(sharding_.quantized);
    return end;
  }

  const Sharding& sharding_;
  What what_;
  std::vector<size_t> slot_of_;  // by block
  std::vector<size_t> bytes_;    // by slot
};

std::vector<size_t> blocks_of(const ShardLayout& layout, BlockKind kind) {
  std::vector<size_t> found;
  for (size_t block = 0; block < layout.blocks().size(); ++block)
    if (layout.blocks()[block].kind == kind) found.push_back(block);
  return found;
}

// Returns every second element of `blocks`, from index `first` on.
std::vector<size_t> every_second(const std::vector<size_t>& blocks, size_t first) {
  std::vector<size_t> found;
  for (size_t i = first; i < blocks.size(); i += 2) found.push_back(blocks[i]);
  return found;
}

// Returns the slots of weights. Blocks are used in the order embedding, layers, end; a tied
// embedding is used again together with the end.
Slots weight_slots(const Sharding& sharding, bool tied) {
  const ShardLayout& layout = sharding.layout;
  Slots slots(sharding, What::kWeights);
  if (sharding.zero_stage < 3) {
    slots.add_each();
    return slots;
  }
  std::vector<size_t> blocks = blocks_of(layout, BlockKind::kEmbedding);
  const std::vector<size_t> end = blocks_of(layout, BlockKind::kEnd);
  if (tied) {
    slots.add(end);
  } else {
    blocks.insert(blocks.end(), end.begin(), end.end());
  }
  slots.add(blocks);
  const std::vector<size_t> layers = blocks_of(layout, BlockKind::kLayer);
  slots.add(every_second(layers, 0));
  slots.add(every_second(layers, 1));
  return slots;
}

// Returns the slots of gradients. Blocks are used in the order end, layers from the last to the
// first, embedding; a tied embedding is also used first.
Slots gradient_slots(const Sharding& sharding, bool tied) {
  const ShardLayout& layout = sharding.layout;
  Slots slots(sharding, What::kGradients);
  if (sharding.zero_stage < 2) {
    slots.add_each();
    return slots;
  }
  std::vector<size_t> blocks = blocks_of(layout, BlockKind::kEmbedding);
  const std::vector<size_t> layers = blocks_of(layout, BlockKind::kLayer);
  const std::vector<size_t> end = blocks_of(layout, BlockKind::kEnd);
  if (!blocks.empty() && layout.is_of_both_ends(blocks.front()))
    slots.add(std::exchange(blocks, {}));
  blocks.insert(blocks.end(), layers.begin(), layers.end());
  if (tied) {
    slots.add(end);  // only a norm's gradient, which need not alternate between slots
  } else {
    blocks.insert(blocks.end(), end.begin(), end.end());
  }
  slots.add(every_second(blocks, 0));
  slots.add(every_second(blocks, 1));
  return slots;
}

}  // namespace

BlockMemory plan_blocks(const Sharding& sharding, bool tied, bool training, BufferId params,
                        BufferId grads, BufferId frozen, MemoryPlan& plan) {
  BlockMemory memory;
  const auto at = [](const ParamBucket& bucket, BufferId block, DType dtype) {
    return BufferLocation{block, bucket.shard_offset * static_cast<int64_t>(dtype_bytes(dtype))};
  };
  for (const ParamBucket& bucket : sharding.layout.buckets()) {
    memory.buckets.push_back(
        {at(bucket, params, sharding.layout.stored()), at(bucket, grads, DType::kF32)});
  }
  for (const ParamBucket& bucket : sharding.frozen.buckets())
    memory.frozen.push_back({at(bucket, frozen, sharding.frozen.stored()), {}});
  memory.quantized.resize(sharding.quantized.buckets().size());  // all of them are in slots
  weight_slots(sharding, tied).place(plan, memory);
  if (training) gradient_slots(sharding, tied).place(plan, memory);
  return memory;
}

}  // namespace muster::trainer
