#include "jobspec/keys/model_keys.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include <absl/strings/str_cat.h>

#include "common/text/absl_view.h"
#include "trainer_core/base/activation.h"

namespace muster::jobspec {
namespace {

using trainer::Activation;
using trainer::ModelConfig;
using trainer::NormType;
using trainer::PositionType;

// The properties that MaxText's decoder_block decides besides the other keys
// (layers/{models,llama2,mistral,gemma,gpt3}.py).
struct Block {
  std::string_view name;
  NormType norm_type;
  double norm_gain_offset;
  PositionType position_type;
  bool scale_embeddings;
  bool has_biases;
  bool parallel = false;
};
constexpr Block kBlocks[] = {
    {"llama2", NormType::kRms, 0, PositionType::kRope, false, false},
    {"mistral", NormType::kRms, 0, PositionType::kRope, false, false},
    {"mixtral", NormType::kRms, 0, PositionType::kRope, false, false},
    {"gemma", NormType::kRms, 1, PositionType::kRope, true, false},
    {"gpt3", NormType::kLayer, 1, PositionType::kLearned, false, true},
    {"default", NormType::kRms, 0, PositionType::kRope, false, false, true},
};

const Block& block_named(std::string_view name) {
  for (const Block& block : kBlocks) {
    if (block.name == name) return block;
  }
  return kBlocks[0];  // other names are rejected as restricted values
}

// MaxText assigns powers of two one after another: heads and mlp, then width, then layers.
absl::Status scale_model(int64_t scale, ModelConfig& model) {
  if (scale < 1 || (scale & (scale - 1)) != 0 || scale > (int64_t{1} << 30)) {
    return absl::InvalidArgumentError(
        absl::StrCat("global_parameter_scale=", scale, ": must be a power of two"));
  }
  int doublings = 0;
  while ((int64_t{1} << doublings) < scale) ++doublings;
  const int rounds = doublings / 3;
  const int heads = rounds + (doublings % 3 > 0 ? 1 : 0);
  const int width = rounds + (doublings % 3 > 1 ? 1 : 0);
  const std::pair<int32_t*, int> scaled[] = {{&model.num_query_heads, heads},
                                             {&model.num_kv_heads, heads},
                                             {&model.mlp_dim, heads},
                                             {&model.emb_dim, width},
                                             {&model.num_layers, rounds}};
  for (const auto& [size, bits] : scaled) {
    const int64_t value = static_cast<int64_t>(*size) * (int64_t{1} << bits);
    if (value > std::numeric_limits<int32_t>::max()) {
      return absl::InvalidArgumentError(
          absl::StrCat("global_parameter_scale=", scale, ": the model becomes too large"));
    }
    *size = static_cast<int32_t>(value);
  }
  return absl::OkStatus();
}

absl::Status read_sizes(SettingsReader& reader, ModelConfig& model) {
  reader.read("model_name", model.name);
  reader.read("vocab_size", model.vocab_size);
  reader.read("base_emb_dim", model.emb_dim);
  reader.read("base_num_decoder_layers", model.num_layers);
  reader.read("base_num_query_heads", model.num_query_heads);
  reader.read("base_num_kv_heads", model.num_kv_heads);
  reader.read("head_dim", model.head_dim);
  reader.read("base_mlp_dim", model.mlp_dim);
  int64_t scale = 1;
  reader.read("global_parameter_scale", scale);
  return reader.status().ok() ? scale_model(scale, model) : reader.status();
}

void read_block(SettingsReader& reader, ModelConfig& model) {
  std::string name = "llama2";
  reader.read("decoder_block", name);
  const Block& block = block_named(name);
  model.norm_type = block.norm_type;
  model.norm_gain_offset = block.norm_gain_offset;
  model.position_type = block.position_type;
  model.scale_embeddings = block.scale_embeddings;
  model.parallel_block = block.parallel;
  bool attention_bias = false;
  reader.read("attention_bias", attention_bias);
  model.qkv_bias = model.out_bias = block.has_biases || attention_bias;
  model.mlp_bias = block.has_biases;
  reader.read("normalization_layer_epsilon", model.norm_epsilon);
}

// Returns "must be ['silu'], … or ['relu'], or one of them followed by 'linear' …".
std::string activation_requirement() {
  constexpr const auto& kNames = trainer::kActivationNames;
  std::string lists;
  for (size_t i = 0; i < kNames.size(); ++i) {
    const char* const before = i == 0 ? "" : i + 1 == kNames.size() ? " or " : ", ";
    absl::StrAppend(&lists, before, "['", av(kNames[i]), "']");
  }
  return absl::StrCat("must be ", lists,
                      ", or one of them followed by 'linear' for a gated MLP, "
                      "as ['",
                      av(kNames[0]), "', 'linear']");
}

// Reads a list of MaxText's form: ['gelu', 'linear'] is a gated MLP, ['gelu'] one without a gate.
// An empty list leaves both outputs as they are. The reader keeps an error for any other list: the
// key table restricts the values, too, but a new value there must not become another activation.
void read_activations(SettingsReader& reader, std::string_view key, Activation& activation,
                      bool& gated) {
  std::vector<std::string> names;
  reader.read(key, names);
  if (names.empty()) return;
  const auto found = trainer::value_named<Activation>(trainer::kActivationNames, names.front());
  const bool has_gate = names.size() == 2 && names.back() == "linear";
  const bool is_known = found && (names.size() == 1 || has_gate);
  reader.require(is_known, key, activation_requirement());
  if (!is_known) return;
  activation = *found;
  gated = has_gate;
}

void read_experts(SettingsReader& reader, ModelConfig& model, std::vector<std::string>& warnings) {
  trainer::ExpertConfig experts;
  reader.read("num_experts", experts.count);
  static constexpr std::string_view kKeys[] = {
      "num_experts_per_tok",      "base_moe_mlp_dim", "interleave_moe_layer_step",
      "first_moe_layer",          "capacity_factor",  "expert_activations",
      "load_balance_loss_weight", "router_style",     "num_groups"};
  if (experts.count == 1) {
    for (const std::string_view key : kKeys) {
      if (reader.is_set_explicitly(key))
        warnings.push_back(absl::StrCat(av(key), " has no effect: num_experts is 1"));
    }
    return;
  }
  experts.activation = model.activation;
  experts.gated = model.gated_mlp;
  experts.mlp_dim = -1;
  experts.first_layer = -1;
  std::string router = "maxtext";
  reader.read("num_experts_per_tok", experts.per_token);
  reader.read("base_moe_mlp_dim", experts.mlp_dim);
  reader.read("interleave_moe_layer_step", experts.layer_step);
  reader.read("first_moe_layer", experts.first_layer);
  reader.read("capacity_factor", experts.capacity_factor);
  reader.read("load_balance_loss_weight", experts.balance_weight);
  read_activations(reader, "expert_activations", experts.activation, experts.gated);
  reader.read("router_style", router);
  if (router == "pax") {
    experts.router = trainer::RouterStyle::kPax;
    reader.read("num_groups", experts.num_groups);
  } else if (reader.is_set_explicitly("num_groups")) {
    warnings.push_back(
        "num_groups has no effect: router_style is maxtext, whose groups are sequences");
  }
  if (experts.mlp_dim == -1) experts.mlp_dim = model.mlp_dim;
  // MaxText's default: the last layer of each group.
  if (experts.first_layer == -1) experts.first_layer = experts.layer_step - 1;
  model.experts = experts;
}

void read_rope(SettingsReader& reader, ModelConfig& model, std::vector<std::string>& warnings) {
  reader.read("rope_max_timescale", model.rope_max_timescale);
  std::string type = "default";
  bool use_scale = true;
  reader.read("rope_type", type);
  reader.read("rope_use_scale", use_scale);
  static constexpr std::string_view kScalingKeys[] = {
      "rope_scaling_factor", "rope_low_frequency_factor", "rope_high_frequency_factor",
      "rope_original_max_position"};
  if (type != "llama3.1" || !use_scale) {
    for (const std::string_view key : kScalingKeys) {
      if (!reader.is_set_explicitly(key)) continue;
      warnings.push_back(absl::StrCat(av(key), " has no effect: rope_type is ", type,
                                      use_scale ? "" : " and rope_use_scale is false"));
    }
    return;
  }
  reader.read(kScalingKeys[0], model.rope_scaling.factor);
  reader.read(kScalingKeys[1], model.rope_scaling.low_frequency_factor);
  reader.read(kScalingKeys[2], model.rope_scaling.high_frequency_factor);
  reader.read(kScalingKeys[3], model.rope_scaling.original_max_position);
}

void read_relative_positions(SettingsReader& reader, ModelConfig& model,
                             std::vector<std::string>& warnings) {
  static constexpr std::string_view kKeys[] = {"relative_position_buckets",
                                               "relative_position_max_distance"};
  if (model.position_type == PositionType::kRelative) {
    reader.read(kKeys[0], model.relative_buckets.count);
    reader.read(kKeys[1], model.relative_buckets.max_distance);
    return;
  }
  for (const std::string_view key : kKeys) {
    if (reader.is_set_explicitly(key))
      warnings.push_back(absl::StrCat(av(key), " has no effect: position_type is not relative"));
  }
}

void read_positions(SettingsReader& reader, ModelConfig& model,
                    std::vector<std::string>& warnings) {
  std::string type = "default";
  reader.read("position_type", type);
  if (type == "rope") model.position_type = PositionType::kRope;
  if (type == "rope_interleaved") model.position_type = PositionType::kRopeInterleaved;
  if (type == "learned") model.position_type = PositionType::kLearned;
  if (type == "relative") model.position_type = PositionType::kRelative;
  int32_t size = -1;
  reader.read("trainable_position_size", size);
  if (model.learns_positions()) {
    reader.require(size >= 1, "trainable_position_size",
                   "this model learns its positions: give the number of tokens of the longest "
                   "sequence, for example trainable_position_size=2048");
    model.trainable_position_size = size;
  } else {
    reader.require(size < 1, "trainable_position_size",
                   absl::StrCat("this model has ", model.has_rope() ? "RoPE" : "relative positions",
                                "; learned positions need decoder_block=gpt3 or "
                                "position_type=learned"));
  }
  if (model.has_rope()) read_rope(reader, model, warnings);
  read_relative_positions(reader, model, warnings);
}

void read_attention(SettingsReader& reader, ModelConfig& model,
                    std::vector<std::string>& warnings) {
  std::string type = "global";
  int32_t window = 0;
  reader.read("attention_type", type);
  reader.read("sliding_window_size", window);
  reader.require(window >= 0, "sliding_window_size", "must be at least 0");
  if (type == "local_sliding") {
    reader.require(window >= 1, "sliding_window_size",
                   "attention_type=local_sliding needs a window of at least 1 token");
    model.sliding_window_size = window;
  } else if (window != 0) {
    warnings.push_back(absl::StrCat("sliding_window_size=", window,
                                    " has no effect: attention_type is ", type,
                                    "; set attention_type=local_sliding"));
  }
  reader.read("query_scale", model.query_scale);
  reader.read("attention_extra_zero", model.attention_extra_zero);
  reader.read("attn_logits_soft_cap", model.attn_logits_soft_cap);
}

// MaxText stores Gemma's embeddings multiplied by sqrt(width), and divides the logits of a tied
// head by it. Our layout is Hugging Face's, which stores them unscaled, so that the two factors
// cancel for Gemma.
void read_head(SettingsReader& reader, ModelConfig& model) {
  bool normalize = true;
  reader.read("logits_via_embedding", model.logits_via_embedding);
  reader.read("normalize_embedding_logits", normalize);
  const double root = std::sqrt(static_cast<double>(model.emb_dim));
  if (model.logits_via_embedding && root > 0) {
    if (normalize && !model.scale_embeddings) model.logits_scale = 1 / root;
    if (!normalize && model.scale_embeddings) model.logits_scale = root;
  }
  reader.read("final_logits_soft_cap", model.final_logits_soft_cap);
  reader.read("z_loss_multiplier", model.z_loss_multiplier);
}

void read_dropout(SettingsReader& reader, ModelConfig& model, std::vector<std::string>& warnings) {
  bool enabled = true;
  double of_input = -1;
  reader.read("enable_dropout", enabled);
  reader.read("dropout_rate", model.dropout_rate);
  reader.read("input_dropout_rate", of_input);
  model.input_dropout_rate = of_input == -1 ? model.dropout_rate : of_input;
  if (enabled) return;
  for (const auto& [key, rate] :
       {std::pair("dropout_rate", model.dropout_rate), std::pair("input_dropout_rate", of_input)}) {
    if (rate > 0 && reader.is_set_by_user(key))
      warnings.push_back(absl::StrCat(key, "=", rate, " has no effect: enable_dropout is false"));
  }
  model.dropout_rate = model.input_dropout_rate = 0;
}

}  // namespace

absl::Status read_model(SettingsReader& reader, ModelConfig& model,
                        std::vector<std::string>& warnings) {
  if (auto status = read_sizes(reader, model); !status.ok()) return status;
  read_block(reader, model);
  read_activations(reader, "mlp_activations", model.activation, model.gated_mlp);
  read_experts(reader, model, warnings);
  read_positions(reader, model, warnings);
  read_attention(reader, model, warnings);
  read_head(reader, model);
  read_dropout(reader, model, warnings);
  reader.read("init_std", model.init_std);
  reader.read("embedding_init_std", model.embedding_init_std);
  return reader.status();
}

void read_dtype(SettingsReader& reader, trainer::ComputeType& dtype) {
  reader.read_choice("dtype", trainer::kComputeTypeNames, dtype);
}

}  // namespace muster::jobspec
