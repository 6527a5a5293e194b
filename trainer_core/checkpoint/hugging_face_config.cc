// Parses the config.json of each family. If a field is missing, the default is that of
// transformers.
#include <algorithm>
#include <limits>
#include <string_view>
#include <vector>

#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

#include "common/absl_view.h"
#include "trainer_core/base/json_file.h"
#include "trainer_core/checkpoint/hugging_face.h"
#include "trainer_core/checkpoint/json_fields.h"

namespace muster::trainer {
namespace {

using nlohmann::json;

// The maximum size of a config.json. Published ones have some kilobytes.
constexpr size_t kConfigBytesMax = 1 << 20;

// Reads rope_scaling or, since transformers 5, rope_parameters, which also contains rope_theta.
void read_rope_group(JsonFields& fields, std::string_view name, ModelConfig& model) {
  if (!fields.has(name)) return;
  JsonFields group = fields.group(name);
  group.optional_number("rope_theta", 1, model.rope_max_timescale);
  group.only("partial_rotary_factor", {1.0});
  const char* kind = group.has("rope_type") ? "rope_type" : "type";
  group.only(kind, {"llama3", "default"});
  if (name == "rope_scaling" && !group.has(kind)) group.fail("rope_type", "missing");
  JsonFields as_default = group;
  as_default.only(kind, {"default"});
  if (group.has(kind) && !as_default.status().ok()) {
    RopeScaling& scaling = model.rope_scaling;
    group.number("factor", 1, scaling.factor);
    group.number("low_freq_factor", kEpsilonMin, scaling.low_frequency_factor);
    group.number("high_freq_factor", kEpsilonMin, scaling.high_frequency_factor);
    group.size("original_max_position_embeddings", scaling.original_max_position);
  }
  fields.take(group, name);
}

void read_rope(JsonFields& fields, ModelConfig& model) {
  fields.optional_number("rope_theta", 1, model.rope_max_timescale);
  fields.only("partial_rotary_factor", {1.0});
  if (fields.has("rope_scaling") && fields.has("rope_parameters")) {
    return fields.fail("rope_parameters", "there beside rope_scaling; which of them holds?");
  }
  read_rope_group(fields, "rope_scaling", model);
  read_rope_group(fields, "rope_parameters", model);
}

// The defaults of a family that differ from those of Llama. Llama's are: as many KV heads as query
// heads, and a head_dim of the width divided by the heads.
struct Defaults {
  int32_t kv_heads = 0;
  int32_t head_dim = 0;
  double norm_epsilon = 1e-6;
};

// Reads the fields that all families except GPT-2 share.
void read_llama_sizes(JsonFields& fields, Defaults defaults, ModelConfig& model) {
  fields.size("vocab_size", model.vocab_size);
  fields.size("hidden_size", model.emb_dim);
  fields.size("intermediate_size", model.mlp_dim);
  fields.size("num_hidden_layers", model.num_layers);
  fields.size("num_attention_heads", model.num_query_heads);
  const bool as_queries = defaults.kv_heads == 0 || fields.is_null("num_key_value_heads");
  model.num_kv_heads = as_queries ? model.num_query_heads : defaults.kv_heads;
  fields.optional_size("num_key_value_heads", model.num_kv_heads);
  if (fields.status().ok() && model.num_query_heads % model.num_kv_heads != 0) {
    fields.fail("num_key_value_heads",
                absl::StrCat(model.num_kv_heads, ", which does not divide num_attention_heads (",
                             model.num_query_heads, ")"));
  }
  model.head_dim = defaults.head_dim;
  if (defaults.head_dim == 0 || fields.has("head_dim"))
    read_head_dim(fields, "hidden_size", "num_attention_heads", model);
  model.norm_epsilon = defaults.norm_epsilon;
  fields.optional_number("rms_norm_eps", kEpsilonMin, model.norm_epsilon);
  fields.optional_flag("tie_word_embeddings", model.logits_via_embedding);
  read_rope(fields, model);
}

// Reads a field such as `hidden_act`; if it is absent, `activation` remains unchanged.
void read_activation(JsonFields& fields, std::string_view name, Activation& activation) {
  std::vector<json> values;
  std::vector<Activation> activations;
  for (const ActivationRow& row : kActivationRows) {
    for (const std::string_view value : row.hugging_face) {
      if (value.empty()) continue;
      values.emplace_back(value);
      activations.push_back(row.activation);
    }
  }
  if (const auto found = fields.index_of(name, values)) activation = activations[*found];
}

void read_attention_bias(JsonFields& fields, ModelConfig& model) {
  bool bias = false;
  fields.optional_flag("attention_bias", bias);
  model.qkv_bias = model.out_bias = bias;
}

void read_llama(JsonFields& fields, ModelConfig& model) {
  read_llama_sizes(fields, {}, model);
  read_attention_bias(fields, model);
  fields.optional_flag("mlp_bias", model.mlp_bias);
  read_activation(fields, "hidden_act", model.activation);
}

void read_mistral(JsonFields& fields, ModelConfig& model) {
  read_llama_sizes(fields, {.kv_heads = 8}, model);
  read_activation(fields, "hidden_act", model.activation);
  model.sliding_window_size = fields.is_null("sliding_window") ? 0 : 4096;
  fields.optional_size("sliding_window", model.sliding_window_size);
}

void read_mixtral(JsonFields& fields, ModelConfig& model) {
  model.rope_max_timescale = 1e6;
  read_llama_sizes(fields, {.kv_heads = 8, .norm_epsilon = 1e-5}, model);
  read_activation(fields, "hidden_act", model.activation);
  fields.optional_size("sliding_window", model.sliding_window_size);
  ExpertConfig& experts = model.experts;
  experts.activation = model.activation;
  experts.count = 8;
  experts.per_token = 2;
  experts.mlp_dim = model.mlp_dim;
  fields.optional_size("num_local_experts", experts.count);
  fields.optional_size("num_experts_per_tok", experts.per_token);
  if (experts.count == 1) fields.fail("num_local_experts", "1, but a mixture has at least 2");
}

void read_gemma(JsonFields& fields, ModelConfig& model) {
  model.norm_gain_offset = 1;
  model.scale_embeddings = true;
  model.logits_via_embedding = true;
  model.activation = Activation::kGelu;
  read_llama_sizes(fields, {.kv_heads = 16, .head_dim = 256}, model);
  read_attention_bias(fields, model);
  // The first published files of Gemma state "gelu" in hidden_act but mean gelu_pytorch_tanh.
  // Versions of transformers differ in how they treat such a file, so it is rejected.
  fields.only("hidden_act", {"gelu_pytorch_tanh"});
  fields.only("hidden_activation", {"gelu_pytorch_tanh"});
}

void read_gpt2(JsonFields& fields, ModelConfig& model) {
  model.norm_type = NormType::kLayer;
  model.position_type = PositionType::kLearned;
  model.activation = Activation::kGelu;
  model.gated_mlp = false;
  model.qkv_bias = model.out_bias = model.mlp_bias = true;
  model.logits_via_embedding = true;
  fields.size("vocab_size", model.vocab_size);
  fields.size("n_embd", model.emb_dim);
  fields.size("n_layer", model.num_layers);
  fields.size("n_head", model.num_query_heads);
  fields.size("n_positions", model.trainable_position_size);
  model.num_kv_heads = model.num_query_heads;
  read_head_dim(fields, "n_embd", "n_head", model);
  model.mlp_dim = 4 * std::min(model.emb_dim, std::numeric_limits<int32_t>::max() / 4);
  fields.optional_size("n_inner", model.mlp_dim);
  fields.optional_number("layer_norm_epsilon", kEpsilonMin, model.norm_epsilon);
  fields.optional_flag("tie_word_embeddings", model.logits_via_embedding);
  read_activation(fields, "activation_function", model.activation);
  fields.only("scale_attn_weights", {true});
  fields.only("scale_attn_by_inverse_layer_idx", {false});
  fields.only("add_cross_attention", {false});
}

struct Family {
  const char* model_type;
  void (*read)(JsonFields&, ModelConfig&);
  const char* max_position;
};
constexpr Family kFamilies[] = {{"llama", read_llama, "max_position_embeddings"},
                                {"mistral", read_mistral, "max_position_embeddings"},
                                {"mixtral", read_mixtral, "max_position_embeddings"},
                                {"gemma", read_gemma, "max_position_embeddings"},
                                {"gpt2", read_gpt2, "n_positions"}};

}  // namespace

nlohmann::json token_ids_of(const json& object) {
  const auto is_id = [](const json& value) { return value.is_number_unsigned(); };
  json ids = json::object();
  for (const char* name : kTokenIdFields) {
    const auto found = object.find(name);
    if (found == object.end()) continue;
    if (found->is_null() || is_id(*found) ||
        (found->is_array() && std::all_of(found->begin(), found->end(), is_id)))
      ids[name] = *found;
  }
  return ids;
}

absl::StatusOr<HuggingFaceConfig> parse_hugging_face_config(const json& config) {
  if (!config.is_object()) return absl::InvalidArgumentError("it is not a JSON object");
  JsonFields fields(config);
  fields.only("model_type", {"llama", "mistral", "mixtral", "gemma", "gpt2"});
  if (!fields.has("model_type")) fields.fail("model_type", "missing");
  if (!fields.status().ok()) return fields.status();
  HuggingFaceConfig result;
  result.token_ids = token_ids_of(config);
  result.model.name = config.at("model_type").get<std::string>();
  for (const Family& family : kFamilies) {
    if (result.model.name != family.model_type) continue;
    family.read(fields, result.model);
    fields.optional_size(family.max_position, result.max_position);
  }
  if (!fields.status().ok()) return fields.status();
  if (auto status = validate(result.model); !status.ok()) return status;
  return result;
}

absl::StatusOr<HuggingFaceConfig> read_hugging_face_config(const std::string& folder) {
  const std::string path = absl::StrCat(folder, "/", kHuggingFaceConfigFile);
  const auto config = read_json_file(path, kConfigBytesMax);
  if (!config.ok()) return config.status();
  auto result = parse_hugging_face_config(*config);
  if (!result.ok())
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", result.status().message()));
  return result;
}

}  // namespace muster::trainer
