#include "trainer_core/checkpoint/merged_source.h"

#include <algorithm>
#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/strings/strip.h>

namespace muster::trainer {

MergedSource::MergedSource(ParameterDescription description, AdaptersOnBase parts)
    : ParameterSource(std::move(description)), parts_(std::move(parts)) {
  constexpr absl::string_view kSuffix = ".lora_A.weight";
  for (const ParamSpec& spec : parts_.adapters.table) {
    if (absl::string_view module = spec.name; absl::ConsumeSuffix(&module, kSuffix))
      modules_.emplace(absl::StrCat(module, ".weight"), std::string(module));
  }
  for (const ParamSpec& spec : model_params(parts_.adapters.model))
    if (spec.part == ParamPart::kQuantized) in_blocks_.insert(spec.name);
}

absl::Status MergedSource::read(const HuggingFaceTensor& tensor, std::span<float> out) const {
  if (auto status = parts_.base->read(tensor, out); !status.ok()) return status;
  for (const ParamSpec& row : rows()) {
    if (row.offset < tensor.offset || row.offset >= tensor.offset + tensor.elements()) continue;
    const auto values = out.subspan(static_cast<size_t>(row.offset - tensor.offset),
                                    static_cast<size_t>(row.elements()));
    if (in_blocks_.contains(row.name))
      round_to_blocks(parts_.adapters.model.lora.weight_type, values);
    const auto adapted = modules_.find(row.name);
    if (adapted != modules_.end()) add_product(adapted->second, row, values);
  }
  return absl::OkStatus();
}

absl::Status MergedSource::read_boxes(const std::vector<TensorBox>& boxes,
                                      std::span<float> block) const {
  std::vector<TensorBox> unchanged = boxes;
  const auto merged =
      std::stable_partition(unchanged.begin(), unchanged.end(), [&](const TensorBox& box) {
        const std::string name(box.tensor);
        return !modules_.contains(name) && !in_blocks_.contains(name);
      });
  const std::vector<TensorBox> adapted(merged, unchanged.end());
  unchanged.erase(merged, unchanged.end());
  if (auto status = parts_.base->read_boxes(unchanged, block); !status.ok()) return status;
  return ParameterSource::read_boxes(adapted, block);
}

void MergedSource::add_product(const std::string& module, const ParamSpec& row,
                               std::span<float> rows) const {
  const Adapters& adapters = parts_.adapters;
  const std::span<const float> a = adapters.matrix(module, 'A'), b = adapters.matrix(module, 'B');
  const auto scale = static_cast<float>(adapters.model.lora.scale());
  const auto rank = static_cast<size_t>(adapters.model.lora.rank);
  const auto columns = static_cast<size_t>(row.shape[1]);
  std::vector<float> sums(columns);
  for (size_t i = 0; i < static_cast<size_t>(row.shape[0]); ++i) {
    std::ranges::fill(sums, 0.0F);
    for (size_t k = 0; k < rank; ++k) {
      const float factor = b[i * rank + k];
      for (size_t j = 0; j < columns; ++j) sums[j] += factor * a[k * columns + j];
    }
    for (size_t j = 0; j < columns; ++j) rows[i * columns + j] += scale * sums[j];
  }
}

}  // namespace muster::trainer
