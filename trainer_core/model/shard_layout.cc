#include "trainer_core/model/shard_layout.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <utility>

#include "trainer_core/base/check.h"

namespace muster::trainer {
namespace {

constexpr AxisSet kAlwaysShared = {MeshAxis::kFsdp, MeshAxis::kSequence, MeshAxis::kContext};

// The index of the token table in the parameter table.
constexpr size_t kTokenTable = 0;

void check_fits(const ModelConfig& model, const Mesh& mesh, int32_t pipeline_chunks) {
  const int32_t tensor = mesh.degree(MeshAxis::kTensor), expert = mesh.degree(MeshAxis::kExpert);
  const int32_t kv_heads = model.num_kv_heads;
  MUSTER_CHECK(model.num_query_heads % tensor == 0 &&
               (kv_heads % tensor == 0 || tensor % kv_heads == 0))
      << model.num_query_heads << " heads and " << kv_heads << " KV heads on " << tensor
      << " ranks";
  MUSTER_CHECK(model.experts.count % expert == 0)
      << model.experts.count << " experts on " << expert << " ranks";
  const int32_t chunks = mesh.degree(MeshAxis::kPipeline) * pipeline_chunks;
  MUSTER_CHECK(pipeline_chunks >= 1 && model.num_layers % chunks == 0)
      << model.num_layers << " layers in " << chunks << " chunks";
}

// The boxes of one rank, and the groups that share them.
class RankBoxes {
 public:
  RankBoxes(const ModelConfig& model, const Mesh& mesh, int32_t rank, int32_t pipeline_chunks)
      : model_(model),
        mesh_(mesh),
        at_(mesh.coordinate(rank)),
        chunks_(mesh.degree(MeshAxis::kPipeline) * pipeline_chunks) {}

  bool has(size_t param, const ParamSpec& spec) const {
    const int32_t stage = at(MeshAxis::kPipeline), last = degree(MeshAxis::kPipeline) - 1;
    switch (spec.block.kind) {
      case BlockKind::kEmbedding:
        if (stage != 0 && !(is_tied(param) && stage == last)) return false;
        break;
      case BlockKind::kLayer:
        if (spec.block.layer / (model_.num_layers / chunks_) % (last + 1) != stage) return false;
        break;
      case BlockKind::kEnd:
        if (stage != last) return false;
        break;
    }
    const int32_t experts = model_.experts.count / degree(MeshAxis::kExpert);  // per rank
    return spec.expert < 0 || spec.expert / experts == at(MeshAxis::kExpert);
  }

  TensorBox box(const ParamSpec& spec) const {
    return tensor_box(spec, {at(MeshAxis::kTensor), degree(MeshAxis::kTensor)});
  }

  GroupAxes group(size_t param, const ParamSpec& spec) const {
    GroupAxes group;
    const auto add = [&](MeshAxis axis) {
      if (degree(axis) > 1) group.axes = group.axes.with(axis);
    };
    for (size_t i = 0; i < kMeshAxisCount; ++i) {
      if (kAlwaysShared.contains(static_cast<MeshAxis>(i))) add(static_cast<MeshAxis>(i));
    }
    if (spec.expert < 0) add(MeshAxis::kExpert);
    const int32_t tensor = degree(MeshAxis::kTensor);
    if (spec.split.units < tensor) {
      add(MeshAxis::kTensor);
      if (spec.split.units > 1) group.tensor_run = tensor / static_cast<int32_t>(spec.split.units);
    }
    if (is_tied(param)) {
      add(MeshAxis::kPipeline);
      group.pipeline_ends = degree(MeshAxis::kPipeline) > 2;
    }
    return group;
  }

  // Returns `group` with the tensor axis, along which ranks have the other parts of a split tensor.
  GroupAxes tensor_group(GroupAxes group) const {
    if (degree(MeshAxis::kTensor) > 1) group.axes = group.axes.with(MeshAxis::kTensor);
    group.tensor_run = 0;
    return group;
  }

 private:
  int32_t degree(MeshAxis axis) const { return mesh_.degree(axis); }
  int32_t at(MeshAxis axis) const { return at_[static_cast<size_t>(axis)]; }
  bool is_tied(size_t param) const { return param == kTokenTable && model_.logits_via_embedding; }

  const ModelConfig& model_;
  const Mesh& mesh_;
  const MeshCoordinate at_;
  const int32_t chunks_;
};

}  // namespace

TensorBox tensor_box(const ParamSpec& spec, AxisCoordinate tensor) {
  TensorBox box = whole_box(spec);
  const TensorSplit& split = spec.split;
  if (split.units == 0) return box;
  MUSTER_CHECK(split.units >= tensor.ranks || tensor.ranks % split.units == 0)
      << spec.name << ": " << split.units << " on " << tensor.ranks << " ranks";
  const Share units = share_of(split.units, tensor);
  const int64_t unit = spec.shape[split.dim] / split.units;
  box.begin[split.dim] = units.first * unit;
  box.extent[split.dim] = units.count * unit;
  return box;
}

std::vector<ParamSpec> tensor_part_of(const std::vector<ParamSpec>& table, AxisCoordinate tensor) {
  std::vector<ParamSpec> part = table;
  int64_t offset = 0;
  for (ParamSpec& spec : part) {
    spec.shape = tensor_box(spec, tensor).extent;
    spec.offset = offset;
    offset += spec.elements();
  }
  return part;
}

class ShardLayoutBuilder {
 public:
  ShardLayoutBuilder(const std::vector<ParamSpec>& table, DType stored, ParamPart part)
      : part_(part) {
    layout_.table_ = part_of(table, part);
    layout_.stored_ = stored;
  }

  // Visits the parameters of the complete table in order. `has` states whether the rank has the
  // parameter. Returns its row in the layout's table; nullopt if the layout does not store it.
  std::optional<size_t> next(const ParamSpec& spec, bool has) {
    const bool is_of_part = spec.part == part_;
    const size_t row = is_of_part ? next_row_++ : 0;
    if (!has) return std::nullopt;
    if (layout_.blocks_.empty() || layout_.blocks_.back() != spec.block) {
      end_block();
      layout_.blocks_.push_back(spec.block);
    }
    return is_of_part ? std::optional(row) : std::nullopt;
  }

  // Adds a row of the layout's table, in order. `gathered` is its gathered type if its block is
  // gathered.
  void add(size_t param, TensorBox box, const GroupAxes& group, DType gathered) {
    const auto same = [&](const ParamBucket& bucket) {
      return bucket.group == group && bucket.gathered == gathered;
    };
    auto bucket = std::ranges::find_if(block_, same);
    if (bucket == block_.end()) {
      bucket = block_.insert(block_.end(), ParamBucket{});
      bucket->block = layout_.blocks_.size() - 1;
      bucket->group = group;
      bucket->gathered = gathered;
    }
    box.offset = bucket->elements;
    bucket->elements += box.elements();
    bucket->rows.push_back({param, std::move(box)});
  }

  // Completes the layout. `complete` sets the bucket's fields that depend on the group, and returns
  // the rank's index in the group.
  template <class Complete>
  ShardLayout take(const Complete& complete) {
    end_block();
    for (size_t i = 0; i < layout_.buckets_.size(); ++i) {
      ParamBucket& bucket = layout_.buckets_[i];
      const int64_t member = complete(bucket);
      bucket.shard_elements = (bucket.elements + bucket.group_size - 1) / bucket.group_size;
      if (part_ == ParamPart::kQuantized)
        bucket.shard_elements = padded_to_blocks(bucket.shard_elements);
      bucket.shard_offset = layout_.elements_;
      layout_.elements_ += bucket.shard_elements;
      add_pieces(i, member * bucket.shard_elements);
    }
    return std::move(layout_);
  }

 private:
  // Ends a block. If it is fp32 and not gathered, its buckets are merged, because no bucket needs a
  // type of its own.
  void end_block() {
    const bool gathers = std::ranges::any_of(
        block_, [](const ParamBucket& bucket) { return bucket.group.axes != AxisSet{}; });
    if (!gathers && layout_.stored_ == DType::kF32) merge_block();
    std::ranges::move(block_, std::back_inserter(layout_.buckets_));
    block_.clear();
  }
  void merge_block() {
    if (block_.empty()) return;
    ParamBucket all;
    all.block = block_.front().block;
    for (ParamBucket& bucket : block_) std::ranges::move(bucket.rows, std::back_inserter(all.rows));
    std::ranges::sort(all.rows, {}, &ShardRow::param);
    for (ShardRow& row : all.rows) {
      row.box.offset = all.elements;
      all.elements += row.box.elements();
    }
    block_.clear();
    block_.push_back(std::move(all));
  }

  // Adds the pieces of the shard that begins at `begin` of the bucket.
  void add_pieces(size_t index, int64_t begin) {
    const ParamBucket& bucket = layout_.buckets_[index];
    const int64_t end = begin + bucket.shard_elements;
    for (size_t row = 0; row < bucket.rows.size(); ++row) {
      const TensorBox& box = bucket.rows[row].box;
      const int64_t from = std::max(begin, box.offset);
      const int64_t to = std::min(end, box.offset + box.elements());
      if (from >= to) continue;
      layout_.pieces_.push_back({.param = bucket.rows[row].param,
                                 .bucket = index,
                                 .row = row,
                                 .first = from - box.offset,
                                 .count = to - from,
                                 .offset = bucket.shard_offset + from - begin});
    }
  }

  const ParamPart part_;
  size_t next_row_ = 0;
  ShardLayout layout_;
  std::vector<ParamBucket> block_;  // the buckets of the last block
};

ShardLayout ShardLayout::of(const ModelConfig& model, const Mesh& mesh, int32_t rank, DType dtype,
                            int32_t pipeline_chunks, DType stored, ParamPart part) {
  check_fits(model, mesh, pipeline_chunks);
  const RankBoxes boxes(model, mesh, rank, pipeline_chunks);
  const bool rounds = dtype == DType::kBf16 && !model.quantization.enabled();
  const std::vector<ParamSpec> table = model_params(model);
  ShardLayoutBuilder builder(table, stored, part);
  for (size_t i = 0; i < table.size(); ++i) {
    const auto row = builder.next(table[i], boxes.has(i, table[i]));
    if (!row) continue;
    builder.add(*row, boxes.box(table[i]), boxes.group(i, table[i]),
                rounds ? table[i].rounded_type() : DType::kF32);
  }
  // The size of each group and the rank's place in it: many buckets share the few groups, which in
  // a large fleet have thousands of members.
  std::map<GroupAxes, std::pair<int32_t, int64_t>> places;
  const auto place_in = [&](const GroupAxes& group) {
    const auto [place, is_new] = places.try_emplace(group);
    if (is_new) {
      const std::vector<int32_t> members = mesh.group(rank, group);
      place->second = {static_cast<int32_t>(members.size()),
                       std::ranges::find(members, rank) - members.begin()};
    }
    return place->second;
  };
  return builder.take([&](ParamBucket& bucket) {
    const auto [size, index] = place_in(bucket.group);
    bucket.group_size = size;
    // The fp32 parameters are used in place.
    if (bucket.group_size == 1 && stored == DType::kF32) bucket.gathered = DType::kF32;
    bucket.is_copied = bucket.group_size > 1 || bucket.gathered != stored;
    bucket.tensor_group = boxes.tensor_group(bucket.group);
    return index;
  });
}

ShardLayout ShardLayout::whole(const std::vector<ParamSpec>& table, DType stored, ParamPart part) {
  ShardLayoutBuilder builder(table, stored, part);
  for (const ParamSpec& spec : table) {
    if (const auto row = builder.next(spec, true)) builder.add(*row, whole_box(spec), {}, stored);
  }
  return builder.take([](ParamBucket&) { return int64_t{0}; });
}

bool ShardLayout::gathers(size_t block) const {
  return std::ranges::any_of(buckets_, [&](const ParamBucket& bucket) {
    return bucket.block == block && bucket.group_size > 1;
  });
}

bool ShardLayout::copies(size_t block) const {
  return std::ranges::any_of(buckets_, [&](const ParamBucket& bucket) {
    return bucket.block == block && bucket.is_copied;
  });
}

bool ShardLayout::is_of_both_ends(size_t block) const {
  return std::ranges::any_of(buckets_, [&](const ParamBucket& bucket) {
    return bucket.block == block && bucket.is_of_both_ends();
  });
}

std::vector<TensorBox> ShardLayout::boxes(const ShardPiece& piece) const {
  TensorBox box = row(piece).box;
  box.offset = piece.offset - piece.first;
  return boxes_of_range(box, piece.first, piece.count);
}

std::vector<TensorBox> ShardLayout::stored_boxes() const {
  std::vector<TensorBox> stored;
  for (const ShardPiece& piece : pieces_)
    std::ranges::move(boxes(piece), std::back_inserter(stored));
  for (TensorBox& box : stored) box.dtype = stored_;
  return stored;
}

}  // namespace muster::trainer
