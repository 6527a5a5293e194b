#include "trainer_core/initial_parameters.h"

#include <algorithm>

#include <absl/strings/str_cat.h>

namespace muster::trainer {
namespace {

absl::Status check_tables(const std::vector<ParamSpec>& there,
                          const std::vector<ParamSpec>& wanted) {
  for (size_t i = 0; i < std::min(there.size(), wanted.size()); ++i) {
    if (there[i].name != wanted[i].name) {
      return absl::InvalidArgumentError(absl::StrCat("where it has tensor ", there[i].name,
                                                     ", this run's model has ", wanted[i].name));
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
                                                 extra.name, ", and this run's model has ",
                                                 has_more ? "not" : "one"));
}

// What changes the meaning of the numbers themselves.
absl::Status check_meaning(const ModelConfig& there, const ModelConfig& wanted) {
  for (const char* key : {"position_type", "norm_gain_offset"}) {
    const nlohmann::json a = to_json(there)[key], b = to_json(wanted)[key];
    if (a == b) continue;
    return absl::InvalidArgumentError(absl::StrCat("its numbers are of a model whose ", key, " is ",
                                                   a.dump(), ", and this run's is ", b.dump()));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<ParameterSource>> open_initial_parameters(
    const TrainConfig& config, std::vector<std::string>& notes) {
  const auto with_key = [&](const absl::Status& status) {
    return absl::Status(
        status.code(),
        absl::StrCat("load_parameters_path=", config.load_parameters_path, ": ", status.message()));
  };
  auto source = ParameterSource::open(config.load_parameters_path);
  if (!source.ok()) return with_key(source.status());
  const ModelConfig& there = (*source)->description().model;
  if (auto status = check_tables(model_params(there), model_params(config.model)); !status.ok())
    return with_key(status);
  if (auto status = check_meaning(there, config.model); !status.ok()) return with_key(status);
  for (const std::string& note : (*source)->description().notes) notes.push_back(note);
  if (const auto difference = first_difference(there, config.model)) {
    notes.push_back(absl::StrCat("load_parameters_path: those parameters are of a model whose ",
                                 difference->key, " is ", difference->a, ", and this run's is ",
                                 difference->b));
  }
  return source;
}

absl::Status begin_parameters(const TrainConfig& config, const ShardLayout& layout,
                              std::span<float> params, std::ostream* out) {
  if (config.load_parameters_path.empty()) {
    for (const ShardPiece& piece : layout.pieces()) {
      for (const TensorBox& box : layout.boxes(piece)) {
        init_part(layout.table()[piece.param], config.init_weights_seed, box,
                  params.data() + box.offset);
      }
    }
    return absl::OkStatus();
  }
  std::vector<std::string> notes;
  const auto source = open_initial_parameters(config, notes);
  if (!source.ok()) return source.status();
  if (out != nullptr) {
    for (const std::string& note : notes) *out << note << '\n';
    *out << "parameters are from " << (*source)->description().folder << std::endl;
  }
  return (*source)->read_boxes(layout.stored_boxes(), params);
}

}  // namespace muster::trainer
