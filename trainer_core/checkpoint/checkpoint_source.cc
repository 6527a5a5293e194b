#include "trainer_core/checkpoint/checkpoint_source.h"

#include <set>
#include <string>
#include <utility>

#include <absl/memory/memory.h>
#include <absl/strings/str_cat.h>

#include "trainer_core/checkpoint/adapters.h"
#include "trainer_core/checkpoint/checkpoint.h"

namespace muster::trainer {
namespace {

constexpr char kScalingState[] = "the scaling state of fp8, which is not a parameter";

// Returns whether a tensor of the model's part is state of delayed scaling (model/scaling_state.h).
bool is_scaling_state(const std::string& name, const ModelConfig& model) {
  return model.quantization.enabled() &&
         (name.ends_with("_scale") || name.ends_with("_amax_history"));
}

class CheckpointSource : public ParameterSource {
 public:
  CheckpointSource(ParameterDescription description, Manifest manifest)
      : ParameterSource(std::move(description)), manifest_(std::move(manifest)) {}

  absl::Status read(const HuggingFaceTensor& tensor, std::span<float> out) const override {
    // A tensor is one parameter, or adjacent parameters that other formats store as one tensor.
    std::vector<TensorBox> boxes;
    for (const ParamSpec& row : rows()) {
      if (row.offset < tensor.offset || row.offset >= tensor.offset + tensor.elements()) continue;
      boxes.push_back(whole_box(row));
      boxes.back().offset -= tensor.offset;
    }
    return read_boxes(boxes, out);
  }

  absl::Status read_boxes(const std::vector<TensorBox>& boxes,
                          std::span<float> block) const override {
    const absl::Status status =
        trainer::read_boxes(manifest_, CheckpointPart::kModel, boxes, block);
    if (status.ok()) return status;
    return absl::Status(status.code(),
                        absl::StrCat("checkpoint ", description().folder, ": ", status.message()));
  }

 private:
  Manifest manifest_;
};

absl::StatusOr<std::unique_ptr<ParameterSource>> source_of(const std::string& folder,
                                                           absl::StatusOr<Manifest> manifest,
                                                           UnusedTensorPolicy unused) {
  if (!manifest.ok()) return manifest.status();
  auto config = train_config_from_json(manifest->info.config);
  if (!config.ok())
    return absl::InvalidArgumentError(
        absl::StrCat("checkpoint ", folder, ": ", config.status().message()));
  if (config->model.lora.enabled()) return open_merged_checkpoint(*manifest, *config);
  const auto stored = manifest->tensors(CheckpointPart::kModel);
  const std::vector<ParamSpec> params = model_params(config->model);
  for (const ParamSpec& row : params) {
    const auto found = stored.find(row.name);
    if (found == stored.end() || found->second.shape != row.shape) {
      return absl::InvalidArgumentError(
          absl::StrCat("checkpoint ", folder, " has no tensor ", row.name, " of the shape ",
                       show_shape(row.shape), " that its config has"));
    }
  }
  ParameterDescription description;
  description.tensors.used = params.size();
  std::set<std::string> known;
  for (const ParamSpec& row : params) known.insert(row.name);
  for (const auto& [name, kind] : stored) {
    if (known.contains(name)) continue;
    if (is_scaling_state(name, config->model)) {
      ++description.tensors.ignored[kScalingState];
      continue;
    }
    description.tensors.unused.push_back({name, show_shape(kind.shape), "", ""});
  }
  if (auto status =
          check_unused(folder, "its config", description.tensors, unused, description.notes);
      !status.ok())
    return status;
  description.format = ParameterFormat::kMuster;
  description.folder = folder;
  description.checksum = manifest->checksum;
  description.steps = manifest->info.step;
  // All parameters have one type, weight_dtype. The scaling state is always fp32.
  if (!params.empty() && stored.at(params.front().name).dtype == DType::kBf16)
    description.stored = StoredType::kBf16;
  description.model = config->model;
  description.max_position = config->max_target_length;
  description.config = *std::move(config);
  return absl::make_unique<CheckpointSource>(std::move(description), *std::move(manifest));
}

}  // namespace

absl::StatusOr<std::unique_ptr<ParameterSource>> open_checkpoint(const std::string& path,
                                                                 Verify verify,
                                                                 UnusedTensorPolicy unused) {
  const auto folder = find_checkpoint(path, verify);
  if (!folder.ok()) return folder.status();
  return source_of(*folder, read_manifest(*folder), unused);
}

absl::StatusOr<std::unique_ptr<ParameterSource>> open_same_checkpoint(const std::string& folder,
                                                                      const std::string& checksum) {
  return source_of(folder, read_same_manifest_when_visible(folder, checksum),
                   UnusedTensorPolicy::kRefuse);
}

}  // namespace muster::trainer
