#include "trainer_core/startup/initial_parameters.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/str_join.h>
#include <nlohmann/json.hpp>

#include "common/objects/object_cache.h"
#include "trainer_core/base/check.h"
#include "trainer_core/base/tensor_views.h"
#include "trainer_core/checkpoint/adapters.h"
#include "trainer_core/checkpoint/checkpoint.h"
#include "trainer_core/checkpoint/checkpoint_source.h"
#include "trainer_core/checkpoint/foreign/rotary_source.h"
#include "trainer_core/model/scaling_state.h"
#include "trainer_core/rank/group_peers.h"

namespace muster::trainer {
namespace {

using nlohmann::json;

absl::Status check_tables(const std::vector<ParamSpec>& there,
                          const std::vector<ParamSpec>& wanted) {
  for (size_t i = 0; i < std::min(there.size(), wanted.size()); ++i) {
    if (there[i].name != wanted[i].name) {
      return absl::InvalidArgumentError(absl::StrCat(
          "it has tensor ", there[i].name, " where this run's model has ", wanted[i].name));
    }
    if (there[i].shape != wanted[i].shape) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor ", there[i].name, " has the shape ", show_shape(there[i].shape),
                       " there and ", show_shape(wanted[i].shape), " in this run's model"));
    }
  }
  if (there.size() == wanted.size()) return absl::OkStatus();
  const bool has_more = there.size() > wanted.size();
  const ParamSpec& extra = has_more ? there[wanted.size()] : wanted[there.size()];
  return absl::InvalidArgumentError(absl::StrCat(has_more ? "it has" : "it has no", " tensor ",
                                                 extra.name, ", but this run's model has ",
                                                 has_more ? "not" : "one"));
}

// Checks the settings that change the meaning of the stored values.
absl::Status check_meaning(const ModelConfig& there, const ModelConfig& wanted) {
  for (const char* key : {"position_type", "norm_gain_offset"}) {
    const json a = to_json(there)[key], b = to_json(wanted)[key];
    if (a == b) continue;
    return absl::InvalidArgumentError(absl::StrCat("its values are those of a model whose ", key,
                                                   " is ", a.dump(), ", but this run's is ",
                                                   b.dump()));
  }
  return absl::OkStatus();
}

absl::Status with_key(const TrainConfig& config, const absl::Status& status) {
  // An evaluation reads the run's own checkpoint unless the user names another one.
  const bool is_own =
      config.only_evaluates() && config.load_parameters_path == config.checkpoint_directory;
  const std::string key = is_own
                              ? absl::StrCat("eval_only=true evaluates the run ", config.run_name,
                                             ", or load_parameters_path")
                              : absl::StrCat("load_parameters_path=", config.load_parameters_path);
  return {status.code(), absl::StrCat(key, ": ", status.message())};
}

absl::Status check_source(const TrainConfig& config, const ParameterSource& source) {
  const ModelConfig& there = source.description().model;
  const std::vector<ParamSpec> wanted = model_params(base_of(config.model));
  if (auto status = check_tables(model_params(there), wanted); !status.ok()) return status;
  return check_meaning(there, config.model);
}

// Returns the message with which rank 0 describes the source to the other ranks. A local copy of a
// store's objects has the same name in the cache of each node (object_cache.h), because it contains
// the hash of the listing.
std::string found(const ParameterDescription& description, const std::string& hash) {
  const std::string cache = object_cache_folder() + "/";
  const bool is_copy = description.folder.starts_with(cache);
  return json{{"folder", is_copy ? description.folder.substr(cache.size()) : description.folder},
              {"is_copy", is_copy},
              {"checksum", description.checksum},
              {"base_hash", hash}}
      .dump();
}

absl::StatusOr<std::unique_ptr<ParameterSource>> open_found(const TrainConfig& config,
                                                            const std::string& found) {
  const json message = json::parse(found, nullptr, /*allow_exceptions=*/false);
  if (!message.is_object()) return absl::InternalError("rank 0 sent no folder");
  auto folder = message.at("folder").get<std::string>();
  if (message.at("is_copy").get<bool>()) {
    folder = absl::StrCat(object_cache_folder(), "/", folder);
    std::error_code error;
    if (!std::filesystem::exists(folder, error)) {
      return absl::FailedPreconditionError(
          absl::StrCat("this node has no copy in ", folder,
                       ": the objects were replaced while the ranks fetched them; start again"));
    }
  }
  const auto checksum = message.at("checksum").get<std::string>();
  auto source = checksum.empty() ? ParameterSource::open(folder, Verify::kSizes)
                                 : open_same_checkpoint(folder, checksum);
  if (!source.ok()) return source.status();
  source = with_rotary_layout(*std::move(source), config.model.position_type);
  if (auto status = check_source(config, **source); !status.ok()) return status;
  return source;
}

// The elements of a tensor that are in a box: rows of equal length with equal distances.
struct BoxRows {
  int64_t first, pitch, count, length;
};
BoxRows rows_of(const ParamSpec& spec, const TensorBox& box) {
  const CommonRuns runs(whole_box(spec), box);
  const CommonRuns::Run first = runs.at(0);
  const int64_t pitch = runs.count() > 1 ? runs.at(1).from - first.from : 0;
  MUSTER_CHECK(runs.at(runs.count() - 1).from == first.from + (runs.count() - 1) * pitch)
      << spec.name << " has more than two dimensions";
  return {first.from, pitch, runs.count(), runs.length()};
}

void draw_box(Ops& ops, const ParamSpec& spec, uint64_t seed, const TensorBox& box,
              const Tensor& params) {
  if (box.elements() == 0) return;
  if (spec.init != InitKind::kNormal) {
    ops.fill(tensor_at(params, box.offset, {box.elements()}),
             spec.init == InitKind::kOnes ? 1.0F : 0.0F);
    return;
  }
  const BoxRows rows = rows_of(spec, box);
  ops.fill_normal(initial_values(spec, seed), rows.first, rows.pitch,
                  tensor_at(params, box.offset, {rows.count, rows.length}));
}

// Reads the scales of delayed scaling of a checkpoint into `state`, whose history it clears.
// Returns false if the model or the checkpoint has none.
absl::StatusOr<bool> read_scales(const ModelConfig& model, const std::string& folder,
                                 const std::string& checksum, std::span<float> state) {
  const auto count = static_cast<size_t>(scaling_scales(model));
  if (count == 0 || checksum.empty()) return false;  // other formats have no checksum
  const auto manifest = read_same_manifest_when_visible(folder, checksum);
  if (!manifest.ok()) return manifest.status();
  const auto stored = manifest->tensors(CheckpointPart::kModel);
  std::vector<TensorRow> rows = model_rows({}, model);
  rows.resize(count);
  std::vector<TensorBox> boxes;
  for (const TensorRow& row : rows) {
    if (!stored.contains(row.name)) return false;
    boxes.push_back(whole_box(row));
  }
  std::ranges::fill(state, 0.0F);
  const absl::Status status = read_boxes(*manifest, CheckpointPart::kModel, boxes, state);
  if (status.ok()) return true;
  return absl::Status(status.code(), absl::StrCat("checkpoint ", folder, ": ", status.message()));
}

// Checks that adapters fit the run's, and its base.
absl::Status check_same_adapters(const ModelConfig& model, const std::string& base_hash,
                                 const Adapters& adapters) {
  const LoraConfig &ours = model.lora, &theirs = adapters.model.lora;
  if (ours.rank != theirs.rank)
    return absl::InvalidArgumentError(
        absl::StrCat("its adapters have lora_rank ", theirs.rank, ", and this run's ", ours.rank));
  if (ours.targets != theirs.targets)
    return absl::InvalidArgumentError(
        absl::StrCat("its adapters have lora_targets=", absl::StrJoin(theirs.targets, ","),
                     ", and this run's ", absl::StrJoin(ours.targets, ",")));
  // Adapters of PEFT state no type of their base.
  if (!adapters.base_hash.empty() && ours.weight_type != theirs.weight_type) {
    return absl::InvalidArgumentError(absl::StrCat(
        "its adapters were trained with lora_weight_qtype=", show_weight_type(theirs.weight_type),
        ", and this run's is ", show_weight_type(ours.weight_type)));
  }
  // The scale of rsLoRA has a square root.
  constexpr double kRounding = 1e-6;
  if (std::abs(ours.scale() - theirs.scale()) > kRounding * std::abs(ours.scale()))
    return absl::InvalidArgumentError(absl::StrFormat(
        "its adapters have lora_alpha %.17g, and this run's %.17g", theirs.alpha, ours.alpha));
  if (auto status = check_shapes(adapters.folder, adapters.model, model, "this run's");
      !status.ok())
    return status;
  // PEFT has one layout of RoPE's pairs, which read_peft_folder() converts to the run's.
  if (auto status = check_meaning(adapters.model, model); !status.ok())
    return absl::InvalidArgumentError(
        absl::StrCat(status.message(), "; muster convert … --to peft writes them for any run"));
  if (base_hash.empty()) return absl::OkStatus();
  return check_base(adapters, model, base_hash, "this run's");
}

absl::Status with_restore_key(const TrainConfig& config, const absl::Status& status) {
  return {status.code(),
          absl::StrCat("lora_restore_path=", config.lora_restore_path, ": ", status.message())};
}

// Opens the adapters at lora_restore_path; with `found`, which names a folder and its checksum,
// those that rank 0 has opened.
absl::StatusOr<Adapters> restored_adapters(const TrainConfig& config, const std::string& base_hash,
                                           const std::optional<std::string>& found = {}) {
  absl::StatusOr<Adapters> adapters = absl::InternalError("rank 0 sent no folder");
  if (!found.has_value()) {
    adapters = open_adapters(config.lora_restore_path, config.model);
  } else if (const json message = json::parse(*found, nullptr, /*allow_exceptions=*/false);
             message.is_object()) {
    adapters = open_same_adapters(message.at("folder").get<std::string>(),
                                  message.at("checksum").get<std::string>(), config.model);
  }
  if (!adapters.ok()) return with_restore_key(config, adapters.status());
  if (auto status = check_same_adapters(config.model, base_hash, *adapters); !status.ok())
    return with_restore_key(config, status);
  return adapters;
}

// Opens the same adapters on all ranks. If a rank fails, all ranks return its error.
absl::StatusOr<Adapters> share_adapters(const TrainConfig& config, const std::string& base_hash,
                                        ProcessGroups& groups) {
  GroupPeers peers = GroupPeers::of_all(groups, kCheckpointChannel, "load adapters");
  const bool leads = peers.rank() == 0;
  absl::StatusOr<Adapters> adapters = Adapters();
  PeerMessage found;
  if (leads) {
    adapters = restored_adapters(config, base_hash);
    found.status = adapters.status();
    if (adapters.ok())
      found.body = json{{"folder", adapters->folder}, {"checksum", adapters->checksum}}.dump();
  }
  const auto shared = share_message(peers, found);
  if (!shared.ok()) return shared.status();
  if (!shared->status.ok()) return shared->status;
  if (!leads) adapters = restored_adapters(config, base_hash, shared->body);
  const auto all = gather_messages(peers, {adapters.status()});
  if (!all.ok()) return all.status();
  const auto verdict = share_message(peers, {first_error(peers, *all)});
  if (!verdict.ok()) return verdict.status();
  if (!verdict->status.ok()) return verdict->status;
  return adapters;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ParameterSource>> open_initial_parameters(
    const TrainConfig& config, std::vector<std::string>& notes, Verify verify) {
  auto source = ParameterSource::open(config.load_parameters_path, verify);
  if (!source.ok()) return with_key(config, source.status());
  source = with_rotary_layout(*std::move(source), config.model.position_type);
  if (auto status = check_source(config, **source); !status.ok()) return with_key(config, status);
  for (const std::string& note : (*source)->description().notes) notes.push_back(note);
  if (const auto difference = first_difference((*source)->description().model, config.model)) {
    notes.push_back(absl::StrCat(
        "load_parameters_path: the stored parameters are of a model whose ", difference->key,
        " is ", difference->a, ", but this run's is ", difference->b));
  }
  return source;
}

void draw_parameters(Ops& ops, const TrainConfig& config, const ShardLayout& layout,
                     const Tensor& params) {
  for (const ShardPiece& piece : layout.pieces()) {
    const ParamSpec& spec = layout.table()[piece.param];
    for (const TensorBox& box : layout.boxes(piece))
      draw_box(ops, spec, config.init_weights_seed, box, params);
  }
}

absl::StatusOr<LoadedParameters> read_parameters(
    const TrainConfig& config, absl::FunctionRef<absl::Status(const ParameterSource&)> read,
    ProcessGroups& groups, std::ostream& out) {
  GroupPeers peers = GroupPeers::of_all(groups, kCheckpointChannel, "load parameters");
  const bool leads = peers.rank() == 0;
  std::vector<std::string> notes;
  absl::StatusOr<std::unique_ptr<ParameterSource>> source = nullptr;
  absl::StatusOr<std::string> hash = "";
  if (leads) source = open_initial_parameters(config, notes, Verify::kSizes);
  const bool has_found = leads && source.ok();
  if (has_found && has_base(config)) hash = hash_of_base(**source);
  const auto shared =
      share_message(peers, {source.ok() ? hash.status() : source.status(),
                            has_found && hash.ok() ? found((*source)->description(), *hash) : ""});
  if (!shared.ok()) return shared.status();
  if (!shared->status.ok()) return shared->status;
  LoadedParameters loaded;
  if (leads) {
    for (const std::string& note : notes) out << note << '\n';
    const bool is_reference = config.dpo.enabled && !config.model.lora.enabled();
    out << (is_reference ? "reference model: " : "parameters are from ")
        << (*source)->description().folder << std::endl;
    loaded.hash = *hash;
  } else {
    source = open_found(config, shared->body);
    loaded.hash = json::parse(shared->body, nullptr, false).value("base_hash", "");
  }
  absl::Status status = source.status();
  if (status.ok()) status = read(**source);
  if (!status.ok()) status = with_key(config, status);
  const auto all = gather_messages(peers, {status});
  if (!all.ok()) return all.status();
  const auto verdict = share_message(peers, {first_error(peers, *all)});
  if (!verdict.ok()) return verdict.status();
  if (!verdict->status.ok()) return verdict->status;
  loaded.steps = (*source)->description().steps;
  return loaded;
}

absl::StatusOr<LoadedParameters> load_parameters(const TrainConfig& config,
                                                 const ShardLayout& layout, std::span<float> params,
                                                 ProcessGroups& groups, std::ostream& out) {
  const auto shards = params.first(static_cast<size_t>(layout.stored_floats()));
  bool has_scales = false;
  auto loaded = read_parameters(
      config,
      [&](const ParameterSource& source) -> absl::Status {
        if (auto status = source.read_boxes(layout.stored_boxes(), shards); !status.ok())
          return status;
        if (!config.only_evaluates()) return absl::OkStatus();
        const auto read = read_scales(config.model, source.description().folder,
                                      source.description().checksum, params.subspan(shards.size()));
        has_scales = read.ok() && *read;
        return read.status();
      },
      groups, out);
  if (loaded.ok()) loaded->has_scales = has_scales;
  return loaded;
}

absl::Status check_adapters(const TrainConfig& config, const std::string& base_hash) {
  if (config.lora_restore_path.empty()) return absl::OkStatus();
  return restored_adapters(config, base_hash).status();
}

absl::StatusOr<LoadedParameters> load_adapters(const TrainConfig& config,
                                               const std::string& base_hash, Ops& ops,
                                               const ShardLayout& layout, std::span<float> params,
                                               ProcessGroups& groups, std::ostream& out) {
  const auto adapters = share_adapters(config, base_hash, groups);
  if (!adapters.ok()) return adapters.status();
  if (groups.rank() == 0) out << "adapters are from " << adapters->folder << std::endl;
  // The shards, which are fp32, and the scaling state.
  std::vector<float> block(params.size());
  for (const TensorBox& box : layout.stored_boxes()) {
    const auto spec = std::ranges::find(adapters->table, box.tensor, &ParamSpec::name);
    const CommonRuns runs(whole_box(*spec), box);
    for (int64_t i = 0; i < runs.count(); ++i) {
      std::copy_n(adapters->values.begin() + spec->offset + runs.at(i).from, runs.length(),
                  block.begin() + box.offset + runs.at(i).to);
    }
  }
  LoadedParameters loaded;
  loaded.steps = adapters->steps;
  if (config.only_evaluates()) {
    const auto read = read_scales(config.model, adapters->folder, adapters->checksum,
                                  std::span(block).subspan(static_cast<size_t>(layout.elements())));
    if (!read.ok()) return with_restore_key(config, read.status());
    loaded.has_scales = *read;
  }
  ops.upload(block.data(), Tensor::f32(params.data(), {static_cast<int64_t>(params.size())}));
  ops.synchronize();
  return loaded;
}

}  // namespace muster::trainer
