#include "trainer_core/parallel/sharded_parameters.h"

#include <algorithm>
#include <utility>

#include <absl/strings/str_cat.h>

#include "trainer_core/parallel/behind_ops.h"

namespace muster::trainer {
namespace {

std::string name_of_block(const ParamBlock& block) {
  switch (block.kind) {
    case BlockKind::kEmbedding:
      return "embedding";
    case BlockKind::kLayer:
      return absl::StrCat("layer ", block.layer);
    case BlockKind::kEnd:
      return "end";
  }
  return "";
}

// Returns "layer 3" or, if a block is gathered in two types, "layer 3 matrices" and "layer 3
// vectors".
std::string name_of_bucket(const ShardLayout& layout, const ParamBucket& bucket) {
  const auto is_other_type = [&](const ParamBucket& other) {
    return other.block == bucket.block && other.gathered != bucket.gathered;
  };
  const std::string block = name_of_block(layout.blocks()[bucket.block]);
  if (std::ranges::none_of(layout.buckets(), is_other_type)) return block;
  return absl::StrCat(block, bucket.gathered == DType::kBf16 ? " matrices" : " vectors");
}

Tensor flat(const Arena& arena, const BufferLocation& location, DType dtype, int64_t elements) {
  return Tensor::of(dtype, static_cast<char*>(arena.buffer(location.buffer)) + location.offset,
                    {elements});
}

Tensor part_of(const Tensor& tensor, int64_t first, int64_t count) {
  const auto skipped = first * static_cast<int64_t>(dtype_bytes(tensor.dtype));
  return Tensor::of(tensor.dtype, static_cast<char*>(tensor.data) + skipped, {count});
}

size_t slots_in(const std::vector<size_t>& slot_of_block) {
  return slot_of_block.empty() ? 0 : 1 + std::ranges::max(slot_of_block);
}

}  // namespace

ShardedParameters::ShardedParameters(const TransformerPlan& plan, const Arena& arena, Ops& ops,
                                     ProcessGroups* groups)
    : plan_(plan),
      arena_(arena),
      ops_(ops),
      groups_(groups),
      weight_slots_(slots_in(plan.blocks.weight_slot)),
      gradient_slots_(slots_in(plan.blocks.gradient_slot)),
      parts_(plan.sharding.layout.blocks().size()),
      stream_(CommStream::start([groups] {
        if (groups != nullptr) groups->abort();
      })) {
  if (groups != nullptr && groups->mesh().degree(MeshAxis::kData) > 1)
    data_ = &groups->of({.axes = {MeshAxis::kData}}, kOverlapChannel);
  for (size_t i = 0; i < plan.sharding.layout.buckets().size(); ++i)
    buckets_.push_back(make_bucket(i, ParamPart::kTrained));
  for (size_t i = 0; i < plan.sharding.frozen.buckets().size(); ++i)
    buckets_.push_back(make_bucket(i, ParamPart::kFrozen));
  for (size_t i = 0; i < plan.sharding.quantized.buckets().size(); ++i)
    buckets_.push_back(make_bucket(i, ParamPart::kQuantized));
}

ShardedParameters::Bucket ShardedParameters::make_bucket(size_t index, ParamPart part) const {
  const bool is_frozen = part != ParamPart::kTrained, in_blocks = part == ParamPart::kQuantized;
  const Sharding& sharding = plan_.sharding;
  const ShardLayout& layout = in_blocks   ? sharding.quantized
                              : is_frozen ? sharding.frozen
                                          : sharding.layout;
  const ParamBucket& from = layout.buckets()[index];
  const BlockMemory& blocks = plan_.blocks;
  const BucketMemory& memory = (in_blocks   ? blocks.quantized
                                : is_frozen ? blocks.frozen
                                            : blocks.buckets)[index];
  const std::string name = absl::StrCat(in_blocks   ? "quantized "
                                        : is_frozen ? "frozen "
                                                    : "",
                                        name_of_bucket(layout, from));
  const auto shard_in = [&](BufferId block, DType dtype) {
    const auto offset = from.shard_offset * static_cast<int64_t>(dtype_bytes(dtype));
    return flat(arena_, {block, offset}, dtype, from.shard_elements);
  };
  Bucket bucket{.block = from.block,
                .is_frozen = is_frozen,
                .is_shared = from.group_size > 1,
                .block_is_gathered = layout.gathers(from.block),
                .elements = from.elements,
                .shard = {},
                .blocks = {},
                .reference_shard = {},
                .weights = flat(arena_, memory.weights, from.gathered, padded_elements(from)),
                .own_weights = {},
                .gradient_shard = {},
                .gradient = {},
                .own_gradient = {},
                .gather_name = absl::StrCat(name, " all-gather"),
                .scatter_name = absl::StrCat(name, " reduce-scatter"),
                .reduce_name = absl::StrCat(name, " all-reduce"),
                .scattered = {}};
  int64_t first = 0;
  if (bucket.is_shared) {
    MUSTER_CHECK(groups_ != nullptr) << name << " is shared by " << from.group_size << " ranks";
    bucket.group = &groups_->of(from.group, kOverlapChannel);
    first = bucket.group->rank() * from.shard_elements;
  }
  if (in_blocks) {
    bucket.blocks = weight_blocks(plan_, arena_).at(from.shard_offset, from.shard_elements);
  } else {
    bucket.shard = shard_in(is_frozen ? plan_.frozen_block : plan_.param_block, layout.stored());
  }
  bucket.reference_shard = !is_frozen && plan_.sharding.has_reference
                               ? shard_in(plan_.reference_block, layout.stored())
                               : bucket.shard;
  bucket.own_weights = part_of(bucket.weights, first, from.shard_elements);
  if (is_frozen || !plan_.training) return bucket;
  bucket.gradient_shard = shard_in(plan_.grad_block, DType::kF32);
  bucket.gradient = flat(arena_, memory.gradients, DType::kF32, padded_elements(from));
  bucket.own_gradient = part_of(bucket.gradient, first, from.shard_elements);
  return bucket;
}

void ShardedParameters::wait(CommTicket ticket) { status_.Update(stream_->wait(ticket)); }

// Weights
// -------------------------------------------------------------------------------------------------

void ShardedParameters::prefetch(size_t block) {
  if (broken() || !plan_.sharding.copies(block)) return;
  Slot& slot = weight_slots_[plan_.blocks.weight_slot[block]];
  if (slot.block == block) return;
  MUSTER_CHECK(!slot.in_use) << "block " << block << " where " << *slot.block << " is in use";
  wait(slot.gathered);
  slot.block = block;
  for (const Bucket& bucket : buckets_) {
    if (bucket.block != block) continue;
    const Tensor& shard = reads_reference_ ? bucket.reference_shard : bucket.shard;
    const bool in_blocks = bucket.blocks.type != WeightType::kPlain;
    const bool converts = in_blocks || bucket.weights.dtype != shard.dtype;
    if (in_blocks) {
      ops_.decode_weights(bucket.blocks, bucket.own_weights);
    } else if (converts) {
      ops_.copy(shard, bucket.own_weights);
    }
    if (!bucket.is_shared) continue;
    // This work begins after the slot's previous contents were read and the shard was written.
    const Tensor& from = converts ? bucket.own_weights : shard;
    slot.gathered = enqueue_after(ops_, *stream_, [&bucket, &from] {
      return bucket.group->all_gather(from, bucket.weights, bucket.gather_name);
    });
  }
}

void ShardedParameters::expect(size_t block) {
  if (!plan_.sharding.copies(block)) return;
  if (!weight_slots_[plan_.blocks.weight_slot[block]].in_use) prefetch(block);
}

void ShardedParameters::acquire(size_t block) {
  if (broken() || !plan_.sharding.copies(block)) return;
  prefetch(block);
  Slot& slot = weight_slots_[plan_.blocks.weight_slot[block]];
  wait(slot.gathered);
  slot.in_use = true;
}

void ShardedParameters::release(size_t block) {
  if (!plan_.sharding.copies(block)) return;
  weight_slots_[plan_.blocks.weight_slot[block]].in_use = false;
}

void ShardedParameters::parameters_changed() {
  for (Slot& slot : weight_slots_) slot.block.reset();
}

void ShardedParameters::read_reference(bool reference) {
  reads_reference_ = reference;
  parameters_changed();
}

void ShardedParameters::gather_ends() {
  const Sharding& sharding = plan_.sharding;
  for (size_t block = 0; block < sharding.layout.blocks().size(); ++block)
    if (sharding.is_of_both_ends(block)) prefetch(block);
}

// Gradients
// -------------------------------------------------------------------------------------------------

void ShardedParameters::begin(const PassPosition& pass) {
  pass_ = pass;
  std::ranges::fill(parts_, 0);
  if (!pass.first) return;
  for (Bucket& bucket : buckets_) bucket.has_gradient = false;
}

bool ShardedParameters::is_complete(size_t block) const {
  const bool is_used_twice = block == plan_.embedding_block() &&
                             plan_.head_block() == plan_.embedding_block() &&
                             plan_.pipeline().has_all_layers();
  return pass_.last && parts_[block] == (is_used_twice ? 2 : 1);
}

bool ShardedParameters::accumulates_before_scatter(size_t block) const {
  return plan_.sharding.zero_stage == 1 || plan_.sharding.layout.is_of_both_ends(block);
}

Accumulate ShardedParameters::begin_gradient(size_t block, Accumulate wanted) {
  if (broken() || !plan_.sharding.layout.gathers(block)) return wanted;
  wait(gradient_slots_[plan_.blocks.gradient_slot[block]]);
  const Accumulate accumulate = accumulates_before_scatter(block) ? wanted : Accumulate::kNo;
  if (accumulate == Accumulate::kYes) return accumulate;
  for (const Bucket& bucket : buckets_) {
    if (bucket.block != block || bucket.is_frozen) continue;
    const int64_t padding = bucket.gradient.elements() - bucket.elements;
    if (padding > 0) ops_.fill(part_of(bucket.gradient, bucket.elements, padding), 0);
  }
  return accumulate;
}

void ShardedParameters::gradient_done(size_t block) {
  if (broken()) return;
  ++parts_[block];
  const bool complete = is_complete(block);
  if (plan_.sharding.layout.is_of_both_ends(block)) {
    if (complete) blocks_at_end_.push_back(block);
    return;
  }
  for (Bucket& bucket : buckets_) {
    if (bucket.block != block || bucket.is_frozen) continue;
    if (bucket.block_is_gathered && (complete || !accumulates_before_scatter(block)))
      scatter(bucket);
    if (complete) sum_over_data(bucket);
  }
}

void ShardedParameters::sum_over_data(Bucket& bucket) {
  if (data_ == nullptr) return;
  enqueue_after(ops_, *stream_, [this, &bucket] {
    return data_->all_reduce(bucket.gradient_shard, bucket.reduce_name);
  });
}

// Reduces the complete gradient to the shard, and adds the shard's earlier gradient.
void ShardedParameters::scatter(Bucket& bucket) {
  if (std::exchange(bucket.has_gradient, true)) {
    wait(bucket.scattered);
    ops_.add(bucket.own_gradient, bucket.gradient_shard, bucket.own_gradient);
  }
  if (!bucket.is_shared) return ops_.copy(bucket.gradient, bucket.gradient_shard);
  bucket.scattered = enqueue_after(ops_, *stream_, [&bucket] {
    return bucket.group->reduce_scatter(bucket.gradient, bucket.gradient_shard,
                                        bucket.scatter_name);
  });
  gradient_slots_[plan_.blocks.gradient_slot[bucket.block]] = bucket.scattered;
}

absl::Status ShardedParameters::finish() {
  for (const size_t block : std::exchange(blocks_at_end_, {})) {
    for (Bucket& bucket : buckets_) {
      if (bucket.block != block || bucket.is_frozen || broken()) continue;
      scatter(bucket);
      sum_over_data(bucket);
    }
  }
  status_.Update(stream_->wait_all());
  return status_;
}

}  // namespace muster::trainer
