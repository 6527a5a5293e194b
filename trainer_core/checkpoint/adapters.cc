#include "trainer_core/checkpoint/adapters.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include "common/text/absl_view.h"
#include "trainer_core/base/bf16.h"
#include "trainer_core/checkpoint/checkpoint.h"
#include "trainer_core/checkpoint/foreign/peft_folder.h"
#include "trainer_core/checkpoint/foreign/rotary_source.h"
#include "trainer_core/checkpoint/merged_source.h"

namespace muster::trainer {
namespace {

// The maximum number of adapters that are the base of each other.
constexpr int kBasesMax = 8;

// Counts the bases that are being opened on this thread, so that adapters which name each other as
// their base are an error.
thread_local int bases_open = 0;
class OpenBase {
 public:
  OpenBase() { ++bases_open; }
  ~OpenBase() { --bases_open; }
  OpenBase(const OpenBase&) = delete;
  OpenBase& operator=(const OpenBase&) = delete;
};

// The initial parameters of a run without load_parameters_path.
class RandomSource : public ParameterSource {
 public:
  RandomSource(ParameterDescription description, uint64_t seed)
      : ParameterSource(std::move(description)), seed_(seed) {}

  absl::Status read(const HuggingFaceTensor& tensor, std::span<float> out) const override {
    for (const ParamSpec& row : rows()) {
      if (row.offset < tensor.offset || row.offset >= tensor.offset + tensor.elements()) continue;
      init_part(row, seed_, whole_box(row), out.data() + (row.offset - tensor.offset));
    }
    return absl::OkStatus();
  }

 private:
  const uint64_t seed_;
};

absl::StatusOr<std::unique_ptr<ParameterSource>> open_base(const std::string& path,
                                                           const std::string& folder,
                                                           PositionType position_type) {
  if (bases_open >= kBasesMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        folder, ": its base ", path, " has adapters whose base has adapters, and so on: at most ",
        kBasesMax, " are supported"));
  }
  const OpenBase open;
  auto base = ParameterSource::open(path, Verify::kSizes);
  if (!base.ok()) {
    return absl::Status(base.status().code(),
                        absl::StrCat(folder, " has adapters alone, and their base cannot be read: ",
                                     base.status().message(),
                                     "; if it has moved to BASE: muster convert … --base BASE, or "
                                     "muster serve (or decode) --run BASE --adapter NAME=",
                                     folder));
  }
  return with_rotary_layout(*std::move(base), position_type);
}

struct AdapterCheckpoint {
  Manifest manifest;
  TrainConfig config;
};
absl::StatusOr<AdapterCheckpoint> adapters_of(absl::StatusOr<Manifest> manifest) {
  if (!manifest.ok()) return manifest.status();
  const std::string& folder = manifest->info.folder;
  auto config = train_config_from_json(manifest->info.config);
  if (!config.ok())
    return absl::InvalidArgumentError(
        absl::StrCat("checkpoint ", folder, ": ", config.status().message()));
  if (!config->model.lora.enabled())
    return absl::InvalidArgumentError(
        absl::StrCat(folder, " has a complete model, and no adapters"));
  return AdapterCheckpoint{*std::move(manifest), *std::move(config)};
}
absl::StatusOr<AdapterCheckpoint> find_adapters(const std::string& path) {
  const auto folder = find_checkpoint(path, Verify::kSizes);
  if (absl::IsNotFound(folder.status()))
    return absl::NotFoundError(
        absl::StrCat(folder.status().message(), ", and no adapter_config.json in ", path,
                     "; it must be the folder of a run with enable_lora, or a folder of PEFT"));
  if (!folder.ok()) return folder.status();
  return adapters_of(read_manifest(*folder));
}

absl::StatusOr<AdaptersOnBase> checked(Adapters adapters, std::unique_ptr<ParameterSource> base,
                                       const std::string& path) {
  // Reading the hash takes time, so it is computed only if there is one to compare.
  std::string hash;
  if (!adapters.base_hash.empty()) {
    auto computed = hash_of_base(*base);
    if (!computed.ok()) return computed.status();
    hash = *std::move(computed);
  }
  if (auto status = check_base(adapters, base->description().model, hash, path); !status.ok())
    return status;
  return AdaptersOnBase{std::move(adapters), std::move(base)};
}

absl::StatusOr<Adapters> read_adapters(const Manifest& manifest, const TrainConfig& config) {
  Adapters adapters{.folder = manifest.info.folder,
                    .checksum = manifest.checksum,
                    .steps = manifest.info.step,
                    .base = config.load_parameters_path,
                    .base_hash = manifest.info.base_hash,
                    .model = config.model,
                    .table = part_of(model_params(config.model), ParamPart::kTrained),
                    .values = {}};
  std::vector<TensorBox> boxes;
  const auto stored = manifest.tensors(CheckpointPart::kModel);
  for (const ParamSpec& spec : adapters.table) {
    const auto found = stored.find(spec.name);
    if (found == stored.end() || found->second.shape != spec.shape) {
      return absl::InvalidArgumentError(
          absl::StrCat("checkpoint ", adapters.folder, " has no tensor ", spec.name,
                       " of the shape ", show_shape(spec.shape), " that its config has"));
    }
    boxes.push_back(whole_box(spec));
  }
  adapters.values.resize(static_cast<size_t>(parameter_count(adapters.table)));
  const auto status = read_boxes(manifest, CheckpointPart::kModel, boxes, adapters.values);
  if (status.ok()) return adapters;
  return absl::Status(status.code(),
                      absl::StrCat("checkpoint ", adapters.folder, ": ", status.message()));
}

absl::StatusOr<AdaptersOnBase> open_with_base(const Manifest& manifest, const TrainConfig& config,
                                              const std::string& base_path) {
  auto adapters = read_adapters(manifest, config);
  if (!adapters.ok()) return adapters.status();
  const std::string path = base_path.empty() ? adapters->base : base_path;
  if (path.empty()) {
    ParameterDescription description;
    description.model = base_of(config.model);
    description.folder = adapters->folder;
    if (adapters->base_hash == hash_of_random_base(config.init_weights_seed))
      adapters->base_hash.clear();
    return checked(*std::move(adapters),
                   std::make_unique<RandomSource>(std::move(description), config.init_weights_seed),
                   path);
  }
  auto base = open_base(path, adapters->folder, config.model.position_type);
  if (!base.ok()) return base.status();
  return checked(*std::move(adapters), *std::move(base), path);
}

}  // namespace

std::string show_weight_type(WeightType type) {
  const std::string_view name = name_of(kWeightTypeNames, type);
  return name.empty() ? "\"\"" : std::string(name);
}

std::span<const float> Adapters::matrix(const std::string& module, char which) const {
  const std::string name = absl::StrCat(module, ".lora_", std::string(1, which), ".weight");
  const auto spec = std::ranges::find(table, name, &ParamSpec::name);
  return std::span(values).subspan(static_cast<size_t>(spec->offset),
                                   static_cast<size_t>(spec->elements()));
}

absl::StatusOr<std::string> hash_of_base(const ParameterSource& base) {
  const ModelConfig& model = base.description().model;
  std::string shapes;
  std::vector<TensorBox> boxes;
  int64_t elements = 0;
  for (const ParamSpec& spec : model_params(model)) {
    absl::StrAppend(&shapes, spec.name, " ", show_shape(spec.shape), "\n");
    const bool is_last =
        spec.block.kind == BlockKind::kLayer && spec.block.layer + 1 == model.num_layers;
    if (spec.shape.size() > 1 && !is_last) continue;
    boxes.push_back(whole_box(spec));
    boxes.back().offset = elements;
    elements += spec.elements();
  }
  std::vector<float> values(static_cast<size_t>(elements));
  if (auto status = base.read_boxes(boxes, values); !status.ok()) return status;
  const XXH64_hash_t of_shapes = XXH3_64bits(shapes.data(), shapes.size());
  return absl::StrFormat(
      "%016x", XXH3_64bits_withSeed(values.data(), values.size() * sizeof(float), of_shapes));
}

std::string hash_of_random_base(uint64_t seed) { return absl::StrCat("random values of ", seed); }

absl::Status check_shapes(const std::string& folder, const ModelConfig& adapted,
                          const ModelConfig& base, const std::string& path) {
  const auto theirs = model_params(base_of(adapted)), ours = model_params(base_of(base));
  const std::string what = absl::StrCat(folder, " has adapters of another base than ", path);
  for (size_t i = 0; i < std::max(theirs.size(), ours.size()); ++i) {
    if (i >= theirs.size() || i >= ours.size() || theirs[i].name != ours[i].name) {
      const ParamSpec& extra = i < theirs.size() ? theirs[i] : ours[i];
      return absl::InvalidArgumentError(absl::StrCat(
          what, ": ", i < theirs.size() ? "the adapters' base" : "this base", " has the tensor ",
          extra.name, ", and the other has ",
          i < theirs.size() && i < ours.size() ? absl::StrCat(ours[i].name, " in its place")
                                               : "not"));
    }
    if (theirs[i].shape != ours[i].shape) {
      return absl::InvalidArgumentError(absl::StrCat(
          what, ": tensor ", ours[i].name, " has the shape ", show_shape(theirs[i].shape),
          " in the adapters' base and ", show_shape(ours[i].shape), " in this one"));
    }
  }
  return absl::OkStatus();
}

absl::Status check_base(const Adapters& adapters, const ModelConfig& base, const std::string& hash,
                        const std::string& path) {
  if (auto status = check_shapes(adapters.folder, adapters.model, base, path); !status.ok())
    return status;
  if (adapters.base_hash.empty() || adapters.base_hash == hash) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(adapters.folder, " has adapters of another base than ", path,
                   ": the tensors have the same shapes, but other values (hash ",
                   adapters.base_hash, " there, ", hash, " here)"));
}

absl::StatusOr<Adapters> open_adapters(const std::string& path, const ModelConfig& base) {
  if (is_peft_folder(path)) return read_peft_folder(path, base);
  const auto found = find_adapters(path);
  if (!found.ok()) return found.status();
  return read_adapters(found->manifest, found->config);
}

absl::StatusOr<Adapters> open_same_adapters(const std::string& folder, const std::string& checksum,
                                            const ModelConfig& base) {
  if (checksum.empty()) return read_peft_folder(folder, base);
  const auto found = adapters_of(read_same_manifest_when_visible(folder, checksum));
  if (!found.ok()) return found.status();
  return read_adapters(found->manifest, found->config);
}

absl::Status judge_base(const TrainConfig& config, const std::string& base_hash,
                        const CheckpointInfo& checkpoint) {
  if (!has_base(config)) return absl::OkStatus();
  const bool adapts = config.model.lora.enabled();
  if (!base_hash.empty() && !checkpoint.base_hash.empty() && checkpoint.base_hash != base_hash) {
    return absl::InvalidArgumentError(absl::StrCat(
        adapts ? "the adapters of " : "checkpoint ", checkpoint.folder,
        adapts ? " are of another base" : " was tuned relative to another reference model",
        " (hash ", checkpoint.base_hash,
        ") than load_parameters_path=", config.load_parameters_path, " (hash ", base_hash,
        "); set another run_name to start from the beginning"));
  }
  if (!adapts) return absl::OkStatus();
  const auto then = train_config_from_json(checkpoint.config);
  // A checkpoint of a complete model has other tensors, which the restore reports.
  if (!then.ok() || !then->model.lora.enabled()) return then.status();
  if (const WeightType type = then->model.lora.weight_type; type != config.model.lora.weight_type) {
    return absl::InvalidArgumentError(absl::StrCat(
        "checkpoint ", checkpoint.folder,
        " was made with lora_weight_qtype=", show_weight_type(type), ", and this run's is ",
        show_weight_type(config.model.lora.weight_type),
        "; restore the earlier value, or set another run_name to start from the beginning"));
  }
  const double ours = config.model.lora.alpha, theirs = then->model.lora.alpha;
  if (ours == theirs) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "checkpoint %s was made with lora_alpha %.17g, and this run's is %.17g; restore the earlier "
      "value, or set another run_name to start from the beginning",
      checkpoint.folder, theirs, ours));
}

absl::StatusOr<AdaptersOnBase> open_with_base(const std::string& path,
                                              const std::string& base_path) {
  if (!is_peft_folder(path)) {
    const auto found = find_adapters(path);
    if (!found.ok()) return found.status();
    return open_with_base(found->manifest, found->config, base_path);
  }
  std::string base_folder = base_path;
  if (base_folder.empty()) {
    auto named = base_of_peft_folder(path);
    if (!named.ok()) return named.status();
    base_folder = *std::move(named);
  }
  auto base = open_base(base_folder, path, PositionType::kRope);
  if (!base.ok()) return base.status();
  auto adapters = read_peft_folder(path, (*base)->description().model);
  if (!adapters.ok()) return adapters.status();
  return checked(*std::move(adapters), *std::move(base), base_folder);
}

absl::StatusOr<std::unique_ptr<ParameterSource>> open_merged_checkpoint(
    const Manifest& manifest, const TrainConfig& config, const std::string& base_path) {
  auto parts = open_with_base(manifest, config, base_path);
  if (!parts.ok()) return parts.status();
  const ParameterDescription& base = parts->base->description();
  ParameterDescription description{.format = ParameterFormat::kMuster,
                                   .folder = manifest.info.folder,
                                   .checksum = manifest.checksum,
                                   .steps = manifest.info.step,
                                   .model = base_of(config.model),
                                   .stored = base.stored,
                                   .max_position = config.max_target_length,
                                   .token_ids = base.token_ids,
                                   .config = config,
                                   .notes = {},
                                   .tensors = base.tensors,
                                   .is_merged = true};
  description.config->model = description.model;
  description.config->load_parameters_path.clear();
  description.config->lora_restore_path.clear();
  description.notes.push_back(
      absl::StrCat("the adapters of ", manifest.info.folder, " are merged into ",
                   base.folder == manifest.info.folder ? "random parameters" : base.folder));
  return std::make_unique<MergedSource>(std::move(description), *std::move(parts));
}

absl::StatusOr<std::unique_ptr<ParameterSource>> open_merged(const std::string& path,
                                                             const std::string& base_path) {
  if (!is_peft_folder(path)) {
    const auto found = find_adapters(path);
    if (!found.ok()) return found.status();
    return open_merged_checkpoint(found->manifest, found->config, base_path);
  }
  auto parts = open_with_base(path, base_path);
  if (!parts.ok()) return parts.status();
  ParameterDescription description = parts->base->description();
  description.notes.push_back(
      absl::StrCat("the adapters of ", path, " are merged into ", description.folder));
  description.is_merged = true;
  // Other ranks open the same folder.
  if (description.tokenizer_folder.empty()) description.tokenizer_folder = description.folder;
  description.folder = path;
  description.checksum.clear();
  return std::make_unique<MergedSource>(std::move(description), *std::move(parts));
}

}  // namespace muster::trainer
