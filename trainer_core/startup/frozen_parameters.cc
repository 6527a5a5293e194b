#include "trainer_core/startup/frozen_parameters.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include <absl/functional/function_ref.h>
#include <absl/strings/str_cat.h>

#include "common/text/absl_view.h"
#include "trainer_core/base/check.h"
#include "trainer_core/base/tensor_views.h"
#include "trainer_core/startup/initial_parameters.h"

namespace muster::trainer {
namespace {

// Reads boxes into a flat block, in the type of the boxes.
using FillBoxes = absl::FunctionRef<absl::Status(const std::vector<TensorBox>&, std::span<float>)>;

// Returns the boxes of this rank's shard of a bucket, with offsets in the shard.
std::vector<TensorBox> boxes_of_shard(const ShardLayout& layout, size_t bucket, DType dtype) {
  std::vector<TensorBox> boxes;
  for (const ShardPiece& piece : layout.pieces()) {
    if (piece.bucket != bucket) continue;
    for (TensorBox& box : layout.boxes(piece)) {
      box.offset -= layout.buckets()[bucket].shard_offset;
      box.dtype = dtype;
      boxes.push_back(std::move(box));
    }
  }
  return boxes;
}

absl::Status fill_plain(RankModel& rank_model, FillBoxes fill) {
  const ShardLayout& layout = rank_model.plan().model.sharding.frozen;
  if (layout.elements() == 0) return absl::OkStatus();
  const Tensor params = rank_model.model().frozen_parameters();
  std::vector<float> block;
  for (size_t i = 0; i < layout.buckets().size(); ++i) {
    const ParamBucket& bucket = layout.buckets()[i];
    block.assign(static_cast<size_t>(floats_of(bucket.shard_elements, layout.stored())), 0);
    if (auto status = fill(boxes_of_shard(layout, i, layout.stored()), block); !status.ok())
      return status;
    rank_model.ops().upload(block.data(),
                            tensor_at(params, bucket.shard_offset, {bucket.shard_elements}));
  }
  return absl::OkStatus();
}

// Returns an error for the first value that is not finite.
absl::Status check_finite(WeightType type, const std::vector<TensorBox>& boxes,
                          std::span<const float> block) {
  for (const TensorBox& box : boxes) {
    const auto values =
        block.subspan(static_cast<size_t>(box.offset), static_cast<size_t>(box.elements()));
    const auto bad = std::ranges::find_if(values, [](float x) { return !std::isfinite(x); });
    if (bad == values.end()) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "tensor ", av(box.tensor), " has the value ", *bad,
        ", but lora_weight_qtype=", av(name_of(kWeightTypeNames, type)), " needs finite values"));
  }
  return absl::OkStatus();
}

// The parameters that are stored in blocks are read in fp32.
absl::Status fill_in_blocks(RankModel& rank_model, int32_t threads, FillBoxes fill) {
  const ShardLayout& layout = rank_model.plan().model.sharding.quantized;
  if (layout.elements() == 0) return absl::OkStatus();
  const WeightBlocks all = rank_model.weight_blocks();
  std::vector<float> values, scales;
  std::vector<uint8_t> codes;
  for (size_t i = 0; i < layout.buckets().size(); ++i) {
    const ParamBucket& bucket = layout.buckets()[i];
    const std::vector<TensorBox> boxes = boxes_of_shard(layout, i, DType::kF32);
    values.assign(static_cast<size_t>(bucket.shard_elements), 0);
    if (auto status = fill(boxes, values); !status.ok()) return status;
    if (auto status = check_finite(all.type, boxes, values); !status.ok()) return status;
    const WeightBlocks blocks = all.at(bucket.shard_offset, bucket.shard_elements);
    codes.resize(static_cast<size_t>(blocks.codes.elements()));
    scales.resize(static_cast<size_t>(blocks.scales.elements()));
    encode_blocks_on(threads, all.type, values, codes, scales);
    rank_model.ops().upload(codes.data(), blocks.codes);
    rank_model.ops().upload(scales.data(), blocks.scales);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status read_base(const ParameterSource& source, RankModel& rank_model, int32_t threads) {
  const auto read = [&](const std::vector<TensorBox>& boxes, std::span<float> block) {
    return source.read_boxes(boxes, block);
  };
  absl::Status status = fill_plain(rank_model, read);
  if (status.ok()) status = fill_in_blocks(rank_model, threads, read);
  rank_model.ops().synchronize();
  return status;
}

absl::StatusOr<std::string> load_base(const TrainConfig& config, RankModel& rank_model,
                                      int32_t threads, ProcessGroups& groups, std::ostream& out) {
  auto loaded = read_parameters(
      config, [&](const ParameterSource& source) { return read_base(source, rank_model, threads); },
      groups, out);
  if (!loaded.ok()) return loaded.status();
  return std::move(loaded->hash);
}

void draw_base(const TrainConfig& config, RankModel& rank_model, int32_t threads) {
  const ShardLayout& frozen = rank_model.plan().model.sharding.frozen;
  if (frozen.elements() > 0)
    draw_parameters(rank_model.ops(), config, frozen, rank_model.model().frozen_parameters());
  const std::vector<ParamSpec>& table = rank_model.plan().model.sharding.quantized.table();
  const absl::Status status = fill_in_blocks(
      rank_model, threads, [&](const std::vector<TensorBox>& boxes, std::span<float> block) {
        for (const TensorBox& box : boxes) {
          const auto spec = std::ranges::find(table, box.tensor, &ParamSpec::name);
          init_part(*spec, config.init_weights_seed, box, block.data() + box.offset);
        }
        return absl::OkStatus();
      });
  MUSTER_CHECK(status.ok()) << status.message();
  rank_model.ops().synchronize();
}

}  // namespace muster::trainer
