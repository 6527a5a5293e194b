#include "trainer_core/checkpoint/parameter_source.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

#include "trainer_core/base/best_path.h"
#include "trainer_core/base/bf16.h"
#include "trainer_core/base/check.h"
#include "trainer_core/base/file_kind.h"
#include "trainer_core/checkpoint/adapters.h"
#include "trainer_core/checkpoint/checkpoint.h"
#include "trainer_core/checkpoint/checkpoint_source.h"
#include "trainer_core/checkpoint/foreign/meta_folder.h"
#include "trainer_core/checkpoint/foreign/model_folder.h"
#include "trainer_core/checkpoint/foreign/peft_folder.h"

namespace muster::trainer {
namespace {

// Returns a canonical form of the fields on which a model's forward pass depends.
ModelConfig essence(ModelConfig model) {
  model.name.clear();
  model.lora = {};          // adapters do not change their base
  model.quantization = {};  // quantization rounds the parameters, but does not change them
  model.dropout_rate = model.input_dropout_rate = model.init_std = model.z_loss_multiplier = 0;
  model.embedding_init_std = 0;
  ExpertConfig& experts = model.experts;
  if (experts.count <= 1) {
    experts = {};
  } else {
    experts.capacity_factor = -1;
    experts.balance_weight = 0;
    experts.num_groups = 0;
    experts.router = RouterStyle::kMaxText;
    // If all layers have experts, the fields of the MLP are not used.
    if (experts.layer_step == 1 && experts.first_layer == 0) {
      model.mlp_dim = experts.mlp_dim;
      model.activation = experts.activation;
      model.gated_mlp = experts.gated;
    }
  }
  if (!model.learns_positions()) model.trainable_position_size = 0;
  if (!model.has_rope()) {
    model.rope_max_timescale = ModelConfig().rope_max_timescale;
    model.rope_scaling = {};
  }
  if (model.rope_scaling.factor == 1) model.rope_scaling = {};
  const double usual_scale = 1 / std::sqrt(static_cast<double>(model.head_dim));
  constexpr double kRounding = 1e-6;  // relative error of fp32
  if (std::abs(model.query_scale - usual_scale) < kRounding * usual_scale) model.query_scale = 0;
  return model;
}

using WantedBoxes = std::multimap<std::string_view, const TensorBox*>;

// Returns the offset in the block at which consecutive, complete parameters are requested without
// gaps; nullopt if they are not.
std::optional<int64_t> offset_of(const WantedBoxes& requested, std::span<const ParamSpec> rows) {
  std::optional<int64_t> offset;
  for (const ParamSpec& row : rows) {
    if (requested.count(row.name) != 1) return std::nullopt;
    const TensorBox& box = *requested.find(row.name)->second;
    if (box.extent != row.shape || box.dtype != DType::kF32) return std::nullopt;
    if (!offset) offset = box.offset;
    if (box.offset - *offset != row.offset - rows.front().offset) return std::nullopt;
  }
  return offset;
}

void copy_box(const ParamSpec& spec, const float* whole, const TensorBox& box,
              std::span<float> block) {
  const CommonRuns runs(whole_box(spec), box);
  for (int64_t i = 0; i < runs.count(); ++i) {
    const auto [from, to] = runs.at(i);
    const int64_t first = box.offset + to;
    if (box.dtype == DType::kF32) {
      std::copy_n(whole + from, runs.length(), block.data() + first);
      continue;
    }
    char* const out = reinterpret_cast<char*>(block.data()) + first * int64_t{sizeof(Bf16)};
    narrow({whole + from, static_cast<size_t>(runs.length())}, StoredType::kBf16, out);
  }
}

}  // namespace

ParameterSource::ParameterSource(ParameterDescription description)
    : description_(std::move(description)),
      rows_(model_params(description_.model)),
      tensors_(hugging_face_tensors(description_.model, rows_)) {}

int64_t ParameterSource::parameters() const {
  int64_t count = 0;
  for (const HuggingFaceTensor& tensor : tensors_) count += tensor.elements();
  return count;
}

absl::StatusOr<std::unique_ptr<ParameterSource>> ParameterSource::open(const std::string& path,
                                                                       Verify verify,
                                                                       UnusedTensorPolicy unused) {
  std::error_code error;
  const auto has = [&](const char* name) {
    return std::filesystem::exists(absl::StrCat(path, "/", name), error);
  };
  if (std::filesystem::exists(path, error) && !std::filesystem::is_directory(path, error)) {
    return explain_model_file(path);
  }
  if (names_best(path)) return open_checkpoint(path, verify, unused);
  if (!std::filesystem::is_directory(path, error)) {
    if (const std::string problem = dangling_problem(path); !problem.empty())
      return absl::NotFoundError(absl::StrCat(path, ": ", problem));
    return absl::NotFoundError(
        absl::StrCat(path, ": there is no such folder; name the folder that the model lies in"));
  }
  // This is checked first, because the folder of a run also has a config.json.
  if (has(kManifestFile) || has("checkpoints")) return open_checkpoint(path, verify, unused);
  if (has(kMetaParamsFile) && has(kMetaFirstFile)) return open_meta(path, unused);
  if (has(kHuggingFaceConfigFile) && (has(kHuggingFaceSingleFile) || has(kHuggingFaceIndexFile)))
    return open_hugging_face(path, unused);
  if (is_peft_folder(path) && has(kPeftWeightsFile)) return open_merged(path);
  if (auto own = open_checkpoint(path, verify, unused); !absl::IsNotFound(own.status())) return own;
  return explain_model_folder(path);
}

absl::Status ParameterSource::read_boxes(const std::vector<TensorBox>& boxes,
                                         std::span<float> block) const {
  WantedBoxes requested;
  for (const TensorBox& box : boxes) requested.emplace(box.tensor, &box);
  std::vector<float> whole;
  auto row = rows_.begin();
  for (const HuggingFaceTensor& tensor : tensors_) {
    // A tensor is one parameter, or adjacent parameters that other formats store as one tensor.
    const auto first = row;
    while (row != rows_.end() && row->offset < tensor.offset + tensor.elements()) ++row;
    const auto is_requested = [&](const ParamSpec& spec) { return requested.contains(spec.name); };
    if (std::none_of(first, row, is_requested)) continue;
    if (const auto offset = offset_of(requested, {first, row})) {
      const auto begin = static_cast<size_t>(*offset),
                 count = static_cast<size_t>(tensor.elements());
      if (auto status = read(tensor, block.subspan(begin, count)); !status.ok()) return status;
      continue;
    }
    whole.resize(static_cast<size_t>(tensor.elements()));
    if (auto status = read(tensor, whole); !status.ok()) return status;
    for (auto spec = first; spec != row; ++spec) {
      const auto [begin, end] = requested.equal_range(spec->name);
      for (auto request = begin; request != end; ++request)
        copy_box(*spec, whole.data() + (spec->offset - tensor.offset), *request->second, block);
    }
  }
  return absl::OkStatus();
}

absl::Status load_parameters(const ParameterSource& source, std::span<float> block) {
  MUSTER_CHECK(std::ssize(block) >= source.parameters())
      << block.size() << " elements for " << source.parameters() << " parameters";
  std::vector<TensorBox> boxes;
  for (const ParamSpec& spec : model_params(source.description().model))
    boxes.push_back(whole_box(spec));
  return source.read_boxes(boxes, block);
}

std::optional<ModelDifference> first_difference(const ModelConfig& a, const ModelConfig& b) {
  const nlohmann::json ours = to_json(essence(a)), theirs = to_json(essence(b));
  for (const auto* both : {&ours, &theirs}) {
    for (const auto& item : both->items()) {
      const auto in = [&](const nlohmann::json& model) {
        const auto found = model.find(item.key());
        return found == model.end() ? "none" : found->dump();
      };
      if (in(ours) != in(theirs)) return ModelDifference{item.key(), in(ours), in(theirs)};
    }
  }
  return std::nullopt;
}

}  // namespace muster::trainer
