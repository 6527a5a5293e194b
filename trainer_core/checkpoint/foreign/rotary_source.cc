#include "trainer_core/checkpoint/foreign/rotary_source.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>

#include "trainer_core/checkpoint/adapters.h"
#include "trainer_core/checkpoint/foreign/rotary_rows.h"

namespace muster::trainer {
namespace {

bool is_query_or_key(const std::string& name) {
  return absl::StrContains(name, ".self_attn.q_proj.") ||
         absl::StrContains(name, ".self_attn.k_proj.");
}

ParameterDescription with_layout(ParameterDescription description, PositionType position_type) {
  description.notes.push_back(absl::StrCat(
      "the rows of queries and keys are reordered while they are read: the stored model has ",
      position_type == PositionType::kRope ? "RoPE's pairs beside each other"
                                           : "RoPE's pairs in halves",
      ", and this run's the other order (position_type)"));
  description.model.position_type = position_type;
  return description;
}

bool is_rope(PositionType type) {
  return type == PositionType::kRope || type == PositionType::kRopeInterleaved;
}

// Converts rows from the other layout to that of `to`.
void reorder(std::span<float> rows, PositionType to, int64_t head_dim, int64_t columns) {
  if (to == PositionType::kRope) {
    split_rotary_pairs(rows, head_dim, columns);
  } else {
    join_rotary_pairs(rows, head_dim, columns);
  }
}

class RotarySource : public ParameterSource {
 public:
  RotarySource(std::unique_ptr<ParameterSource> stored, PositionType position_type)
      : ParameterSource(with_layout(stored->description(), position_type)),
        stored_(std::move(stored)) {}

  absl::Status read(const HuggingFaceTensor& tensor, std::span<float> out) const override {
    if (auto status = stored_->read(tensor, out); !status.ok()) return status;
    if (!is_query_or_key(tensor.name)) return absl::OkStatus();
    const ModelConfig& model = description().model;
    const int64_t columns = tensor.shape.size() > 1 ? tensor.shape[1] : 1;
    reorder(out, model.position_type, model.head_dim, columns);
    return absl::OkStatus();
  }

  // Reads queries and keys completely: a part of a head in one layout has rows from the complete
  // head in the other.
  absl::Status read_boxes(const std::vector<TensorBox>& boxes,
                          std::span<float> block) const override {
    std::vector<TensorBox> unchanged = boxes;
    const auto reordered = std::stable_partition(
        unchanged.begin(), unchanged.end(),
        [](const TensorBox& box) { return !is_query_or_key(std::string(box.tensor)); });
    const std::vector<TensorBox> turned(reordered, unchanged.end());
    unchanged.erase(reordered, unchanged.end());
    if (auto status = stored_->read_boxes(unchanged, block); !status.ok()) return status;
    return ParameterSource::read_boxes(turned, block);
  }

 private:
  const std::unique_ptr<ParameterSource> stored_;
};

}  // namespace

std::unique_ptr<ParameterSource> with_rotary_layout(std::unique_ptr<ParameterSource> source,
                                                    PositionType position_type) {
  const PositionType stored = source->description().model.position_type;
  if (stored == position_type || !is_rope(stored) || !is_rope(position_type)) return source;
  return std::make_unique<RotarySource>(std::move(source), position_type);
}

void reorder_rotary_rows(Adapters& adapters, PositionType position_type) {
  ModelConfig& model = adapters.model;
  if (model.position_type == position_type || !is_rope(model.position_type) ||
      !is_rope(position_type))
    return;
  model.position_type = position_type;
  for (const ParamSpec& spec : adapters.table) {
    if (!is_query_or_key(spec.name) || !spec.name.ends_with(".lora_B.weight")) continue;
    reorder({adapters.values.data() + spec.offset, static_cast<size_t>(spec.elements())},
            position_type, model.head_dim, spec.shape[1]);
  }
}

}  // namespace muster::trainer
