// Parses the config.json of each family. If a field is missing, the default is that of
// transformers.
#include <algorithm>
#include <limits>
#include <string_view>
#include <vector>

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <nlohmann/json.hpp>

#include "common/text/absl_view.h"
#include "trainer_core/base/first_names.h"
#include "trainer_core/base/json_file.h"
#include "trainer_core/checkpoint/foreign/hugging_face.h"
#include "trainer_core/checkpoint/foreign/json_fields.h"

namespace muster::trainer {
namespace {

using nlohmann::json;

// The maximum size of a config.json. Published ones have some kilobytes.
constexpr size_t kConfigBytesMax = 1 << 20;
// The unread fields that a note lists.
constexpr size_t kFieldsShown = 6;

// Reads rope_scaling or, since transformers 5, rope_parameters, which also contains rope_theta.
void read_rope_group(JsonFields& fields, std::string_view name, ModelConfig& model) {
  if (!fields.has(name)) return;
  JsonFields group = fields.group(name);
  if (const std::string layers = group.first_group(); !layers.empty()) {
    return fields.fail(name, absl::StrCat("of several kinds of layers (", layers,
                                          ", …); this trainer runs one RoPE for all layers"));
  }
  group.optional_number("rope_theta", 1, model.rope_max_timescale);
  group.only("partial_rotary_factor", {1.0});
  const char* kind = group.has("rope_type") ? "rope_type" : "type";
  if (group.has(kind) && group.text(kind) != "llama3" && group.text(kind) != "default") {
    return fields.fail(
        name, absl::StrCat("of the type ", group.text(kind),
                           "; this trainer runs \"llama3\" and "
                           "\"default\": convert the model from before its context was extended, "
                           "or remove the key to train on at the original length"));
  }
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
  (void)group.has("type");  // the older name of rope_type, which files have beside it
  if (const std::vector<std::string> unread = group.unread(); !unread.empty()) {
    fields.note(absl::StrCat("config.json: ", av(name),
                             ": not read, because RoPE of this type has "
                             "no such field: ",
                             first_names(unread, kFieldsShown)));
  }
}

// Refuses variants of RoPE: Muster rotates whole heads, in halves.
void check_rope_variants(JsonFields& fields) {
  for (const char* name : {"partial_rotary_factor", "rotary_pct", "rotary_emb_fraction"})
    fields.only(name, {1.0});
  for (const char* name : {"rope_interleave", "rope_interleaved", "alibi", "use_alibi"})
    fields.only(name, {false});
  fields.only("use_rope", {true});
}

void read_rope(JsonFields& fields, ModelConfig& model) {
  fields.optional_number("rope_theta", 1, model.rope_max_timescale);
  check_rope_variants(fields);
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
void parse_hidden_act(JsonFields& fields, std::string_view name, Activation& activation) {
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
  parse_hidden_act(fields, "hidden_act", model.activation);
}

void read_mistral(JsonFields& fields, ModelConfig& model) {
  read_llama_sizes(fields, {.kv_heads = 8}, model);
  parse_hidden_act(fields, "hidden_act", model.activation);
  model.sliding_window_size = fields.is_null("sliding_window") ? 0 : 4096;
  fields.optional_size("sliding_window", model.sliding_window_size);
}

void read_mixtral(JsonFields& fields, ModelConfig& model) {
  model.rope_max_timescale = 1e6;
  read_llama_sizes(fields, {.kv_heads = 8, .norm_epsilon = 1e-5}, model);
  parse_hidden_act(fields, "hidden_act", model.activation);
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
  read_llama_sizes(fields, {.kv_heads = 16, .head_dim = 256}, model);
  read_attention_bias(fields, model);
}

// transformers computes hidden_activation, and without it the tanh approximation, whatever
// hidden_act is: the first published files have "gelu", and were trained with tanh.
void read_gemma_activation(JsonFields& fields, HuggingFaceConfig& config) {
  constexpr char kOld[] = "hidden_act";
  constexpr char kNew[] = "hidden_activation";
  config.model.activation = Activation::kGelu;
  if (fields.has(kNew)) {
    parse_hidden_act(fields, kNew, config.model.activation);
    if (fields.status().ok() && fields.has(kOld) && fields.text(kOld) != fields.text(kNew)) {
      config.notes.push_back(absl::StrCat("config.json: hidden_activation (", fields.text(kNew),
                                          ") is used, not hidden_act (", fields.text(kOld), ")"));
    }
    return;
  }
  if (!fields.has(kOld)) return;
  if (fields.text(kOld) == "gelu") {
    config.notes.emplace_back(
        "config.json: hidden_act of Gemma is \"gelu\", which means gelu_pytorch_tanh, as in "
        "transformers");
    return;
  }
  fields.only(kOld, {"gelu_pytorch_tanh", "gelu_new", "gelu_fast", "gelu"});
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
  parse_hidden_act(fields, "activation_function", model.activation);
  fields.only("scale_attn_weights", {true});
  fields.only("scale_attn_by_inverse_layer_idx", {false});
  fields.only("add_cross_attention", {false});
}

// A model whose weights are packed integers or floats of 8 bits.
void check_quantization(const json& config, JsonFields& fields) {
  for (const char* name : {"quantization_config", "compression_config"}) {
    if (!fields.has(name)) continue;
    const json& value = config.at(name);
    const auto text = [&](const char* key) {
      return value.is_object() && value.contains(key) ? show_json(value.at(key)) : std::string("?");
    };
    fields.fail(name,
                absl::StrCat("there (quant_method ", text("quant_method"), ", bits ", text("bits"),
                             "): this trainer reads models that are not quantized; take the "
                             "original model, or dequantize it with transformers: "
                             "from_pretrained(DIR).dequantize().save_pretrained(NEW)"));
  }
}

// Fields that do not change what a model computes.
constexpr std::string_view kNoEffect =
    " _attn_implementation _attn_implementation_autoset _commit_hash _flash_attn_2_enabled "
    "_name_or_path architectures attention_dropout attn_implementation attn_pdrop bos_token_id "
    "cache_implementation chunk_size_feed_forward decoder_start_token_id do_sample dtype "
    "embd_pdrop eos_token_id finetuning_task gradient_checkpointing hidden_dropout "
    "hidden_dropout_prob id2label initializer_range is_decoder is_encoder_decoder "
    "keys_to_ignore_at_inference label2id max_length max_seq_length max_sequence_length "
    "mlp_dropout model_max_length n_ctx num_beams num_labels output_attentions "
    "output_hidden_states output_router_logits pad_token_id prefix pretraining_tp problem_type "
    "pruned_heads remove_invalid_values reorder_and_upcast_attn resid_pdrop return_dict "
    "return_dict_in_generate router_aux_loss_coef router_jitter_noise sep_token_id "
    "summary_activation summary_first_dropout summary_proj_to_labels summary_type "
    "summary_use_proj task_specific_params temperature tokenizer_class top_k top_p torch_dtype "
    "torchscript transformers_version unk_token_id unsloth_fixed unsloth_version use_bfloat16 "
    "use_cache ";

// Returns whether a field's value means that the feature is off.
bool is_off(const json& value) {
  return value.is_null() || value == false || value == 0 || value == "" ||
         (value.is_structured() && value.empty());
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

// Names the fields that no reader uses: one of them may describe another model.
void note_unread(const json& config, const JsonFields& fields, const Family& family,
                 std::vector<std::string>& notes) {
  std::vector<std::string> unread;
  for (const auto& item : config.items()) {
    const std::string& name = item.key();
    const bool has_no_effect = absl::StrContains(av(kNoEffect), absl::StrCat(" ", name, " "));
    if (is_off(item.value()) || has_no_effect || fields.was_read(name)) continue;
    unread.push_back(absl::StrCat(show_json(name), ": ", show_json(item.value())));
  }
  if (unread.empty()) return;
  notes.push_back(absl::StrCat("config.json: ", unread.size(),
                               unread.size() == 1 ? " field is" : " fields are",
                               " not read, because a ", family.model_type,
                               " has no such field: ", first_names(unread, kFieldsShown)));
}

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
  check_quantization(config, fields);
  if (!fields.status().ok()) return fields.status();
  HuggingFaceConfig result;
  result.token_ids = token_ids_of(config);
  result.model.name = config.at("model_type").get<std::string>();
  for (const Family& family : kFamilies) {
    if (result.model.name != family.model_type) continue;
    family.read(fields, result.model);
    if (result.model.name == "gemma") read_gemma_activation(fields, result);
    fields.optional_size(family.max_position, result.max_position);
    note_unread(config, fields, family, result.notes);
    result.notes.insert(result.notes.end(), fields.notes().begin(), fields.notes().end());
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
