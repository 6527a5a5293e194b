#include "trainer_core/checkpoint/foreign/meta_params.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <string_view>

#include <absl/strings/str_cat.h>

#include "trainer_core/base/json_file.h"
#include "trainer_core/checkpoint/foreign/json_fields.h"

namespace muster::trainer {
namespace {

using nlohmann::json;

// The published values of Llama 3.1, which params.json lacks.
constexpr RopeScaling kLlama31Scaling = {8, 1, 4, 8192};

// Computes mlp_dim: two thirds of four times the width, times ffn_dim_multiplier, rounded up to a
// multiple of multiple_of.
void read_mlp_dim(JsonFields& fields, ModelConfig& model) {
  int32_t multiple_of = 256;
  double multiplier = 1;
  fields.optional_size("multiple_of", multiple_of);
  fields.optional_number("ffn_dim_multiplier", 0, multiplier);
  if (fields.has("hidden_dim")) return fields.size("hidden_dim", model.mlp_dim);
  const int64_t third = int64_t{8} * model.emb_dim / 3;
  const double wanted = std::floor(multiplier * static_cast<double>(third));
  constexpr auto kMax = static_cast<double>(std::numeric_limits<int32_t>::max());
  const double rounded = std::ceil(wanted / multiple_of) * multiple_of;
  if (!(rounded >= 1 && rounded <= kMax)) {
    return fields.fail("ffn_dim_multiplier",
                       absl::StrCat(multiplier, ", which makes an MLP of ", rounded, " columns"));
  }
  model.mlp_dim = static_cast<int32_t>(rounded);
}

void read_meta_rope(JsonFields& fields, ParameterDescription& description) {
  ModelConfig& model = description.model;
  fields.optional_number("rope_theta", 1, model.rope_max_timescale);
  bool scaled = false;
  fields.optional_flag("use_scaled_rope", scaled);
  // The maximum sequence lengths of Llama 3.1, 3 and 2.
  description.max_position = scaled ? 131'072 : model.rope_max_timescale >= 500'000 ? 8192 : 4096;
  fields.optional_size("max_seq_len", description.max_position);
  if (!scaled) return;
  model.rope_scaling = kLlama31Scaling;
  if (fields.has("rope_scaling_factor"))
    return fields.number("rope_scaling_factor", 1, model.rope_scaling.factor);
  description.notes.emplace_back(
      "params.json sets use_scaled_rope without a factor: taken as Llama 3.1's 8; for a Llama "
      "3.2 add \"rope_scaling_factor\": 32 to it");
}

// The fields of published files, and those that other programs add.
constexpr std::string_view kParams[] = {
    "dim",        "n_layers",    "n_heads",         "n_kv_heads",          "vocab_size",
    "norm_eps",   "multiple_of", "rope_theta",      "ffn_dim_multiplier",  "head_dim",
    "hidden_dim", "max_seq_len", "use_scaled_rope", "rope_scaling_factor", "max_batch_size"};

absl::Status check_supported_params(const json& params) {
  for (const auto& item : params.items()) {
    if (std::find(std::begin(kParams), std::end(kParams), item.key()) != std::end(kParams))
      continue;
    return absl::InvalidArgumentError(
        absl::StrCat(show_json(item.key()), " is ", show_json(item.value()),
                     ", which no Llama of Meta's has; remove it if it does not change the model"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status read_meta_params(const json& params, int64_t vocab_rows,
                              ParameterDescription& description) {
  if (!params.is_object()) return absl::InvalidArgumentError("it is not a JSON object");
  if (auto status = check_supported_params(params); !status.ok()) return status;
  JsonFields fields(params);
  ModelConfig& model = description.model;
  model.name = "llama";
  fields.size("dim", model.emb_dim);
  fields.size("n_layers", model.num_layers);
  fields.size("n_heads", model.num_query_heads);
  model.num_kv_heads = model.num_query_heads;
  fields.optional_size("n_kv_heads", model.num_kv_heads);
  if (fields.status().ok()) read_head_dim(fields, "dim", "n_heads", model);
  fields.optional_number("norm_eps", kEpsilonMin, model.norm_epsilon);
  // The vocab_size in files of Llama 2 is -1.
  model.vocab_size = static_cast<int32_t>(std::min<int64_t>(vocab_rows, 1 << 30));
  if (fields.has("vocab_size") && params.at("vocab_size") != -1)
    fields.size("vocab_size", model.vocab_size);
  if (fields.status().ok()) read_mlp_dim(fields, model);
  read_meta_rope(fields, description);
  if (!fields.status().ok()) return fields.status();
  return validate(model);
}

}  // namespace muster::trainer
