// config.json of each family. Defaults are transformers' own, for what a file may leave out.
#include <algorithm>
#include <filesystem>
#include <limits>
#include <string_view>
#include <system_error>

#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

#include "common/absl_view.h"
#include "trainer_core/base/json_file.h"
#include "trainer_core/checkpoint/hugging_face.h"

namespace muster::trainer {
namespace {

using nlohmann::json;

constexpr char kConfigFile[] = "config.json";
// Published ones have some kilobytes.
constexpr size_t kConfigBytesMax = 1 << 20;

// Fields by type, with the first complaint remembered.
class Fields {
 public:
  explicit Fields(const json& config) : config_(config) {}

  // Null counts as absent, but for is_null().
  bool has(std::string_view name) const { return contains(name) && !at(name).is_null(); }
  bool is_null(std::string_view name) const { return contains(name) && at(name).is_null(); }

  void size(std::string_view name, int32_t& out) {
    if (!has(name)) return fail(name, "missing");
    optional_size(name, out);
  }
  void optional_size(std::string_view name, int32_t& out) {
    if (!has(name)) return;
    const json& value = at(name);
    if (!value.is_number_unsigned() || value.get<uint64_t>() < 1 ||
        value.get<uint64_t>() > std::numeric_limits<int32_t>::max()) {
      return fail(name, absl::StrCat(show_json(value), ", but must be a positive whole number"));
    }
    out = value.get<int32_t>();
  }
  void number(std::string_view name, double least, double& out) {
    if (!has(name)) return fail(name, "missing");
    optional_number(name, least, out);
  }
  void optional_number(std::string_view name, double least, double& out) {
    if (!has(name)) return;
    const json& value = at(name);
    if (!value.is_number() || !(value.get<double>() >= least)) {
      return fail(name,
                  absl::StrCat(show_json(value), ", but must be a number of at least ", least));
    }
    out = value.get<double>();
  }
  void optional_flag(std::string_view name, bool& out) {
    if (!has(name)) return;
    if (!at(name).is_boolean())
      return fail(name, absl::StrCat(show_json(at(name)), ", but must be true or false"));
    out = at(name).get<bool>();
  }
  // Refuses whatever is not among `allowed`; a field that is absent passes.
  void only(std::string_view name, std::initializer_list<json> allowed) {
    if (!has(name)) return;
    std::string wanted;
    for (const json& value : allowed) {
      if (at(name) == value) return;
      absl::StrAppend(&wanted, wanted.empty() ? "" : " or ", value.dump());
    }
    fail(name, absl::StrCat(show_json(at(name)), "; this trainer runs ",
                            wanted.empty() ? "this family without it" : wanted));
  }
  // The fields of an object; an empty one, and a complaint, when it is something else.
  Fields group(std::string_view name) {
    static const json nothing = json::object();
    if (at(name).is_object()) return Fields(at(name));
    fail(name, absl::StrCat(show_json(at(name)), ", but must be an object"));
    return Fields(nothing);
  }

  void fail(std::string_view name, std::string_view what) {
    if (status_.ok())
      status_ = absl::InvalidArgumentError(absl::StrCat(av(name), " is ", av(what)));
  }
  void take(const Fields& other, std::string_view group) {
    if (status_.ok() && !other.status_.ok()) {
      status_ = absl::InvalidArgumentError(absl::StrCat(av(group), ": ", other.status_.message()));
    }
  }
  const absl::Status& status() const { return status_; }

 private:
  bool contains(std::string_view name) const { return config_.contains(std::string(name)); }
  const json& at(std::string_view name) const { return config_.at(std::string(name)); }

  const json& config_;
  absl::Status status_;
};

constexpr double kEpsilonMin = std::numeric_limits<float>::denorm_min();

// head_dim, or what the heads share of the width.
void read_head_dim(Fields& fields, std::string_view width_name, std::string_view heads_name,
                   ModelConfig& model) {
  if (fields.has("head_dim")) return fields.size("head_dim", model.head_dim);
  if (!fields.status().ok()) return;
  if (model.emb_dim % model.num_query_heads != 0) {
    return fields.fail(width_name, absl::StrCat(model.emb_dim, ", which ", av(heads_name), " (",
                                                model.num_query_heads, ") does not divide"));
  }
  model.head_dim = model.emb_dim / model.num_query_heads;
}

// rope_scaling, and since transformers 5 rope_parameters, in which rope_theta is, too.
void read_rope_group(Fields& fields, std::string_view name, ModelConfig& model) {
  if (!fields.has(name)) return;
  Fields group = fields.group(name);
  group.optional_number("rope_theta", 1, model.rope_max_timescale);
  group.only("partial_rotary_factor", {1.0});
  const char* kind = group.has("rope_type") ? "rope_type" : "type";
  group.only(kind, {"llama3", "default"});
  if (name == "rope_scaling" && !group.has(kind)) group.fail("rope_type", "missing");
  Fields as_default = group;
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

void read_rope(Fields& fields, ModelConfig& model) {
  fields.optional_number("rope_theta", 1, model.rope_max_timescale);
  fields.only("partial_rotary_factor", {1.0});
  if (fields.has("rope_scaling") && fields.has("rope_parameters")) {
    return fields.fail("rope_parameters", "there beside rope_scaling; which of them holds?");
  }
  read_rope_group(fields, "rope_scaling", model);
  read_rope_group(fields, "rope_parameters", model);
}

// A family's defaults where it has others than Llama's: as many key/value heads as query heads, that share the width.
struct Defaults {
  int32_t kv_heads = 0;
  int32_t head_dim = 0;
};

// What Llama, Mistral and Gemma share.
void read_llama_sizes(Fields& fields, Defaults defaults, ModelConfig& model) {
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
  model.norm_epsilon = 1e-6;
  fields.optional_number("rms_norm_eps", kEpsilonMin, model.norm_epsilon);
  fields.optional_flag("tie_word_embeddings", model.logits_via_embedding);
  read_rope(fields, model);
}

void read_attention_bias(Fields& fields, ModelConfig& model) {
  bool bias = false;
  fields.optional_flag("attention_bias", bias);
  model.qkv_bias = model.out_bias = bias;
}

void read_llama(Fields& fields, ModelConfig& model) {
  read_llama_sizes(fields, {}, model);
  read_attention_bias(fields, model);
  fields.optional_flag("mlp_bias", model.mlp_bias);
  fields.only("hidden_act", {"silu"});
}

void read_mistral(Fields& fields, ModelConfig& model) {
  read_llama_sizes(fields, {.kv_heads = 8}, model);
  fields.only("hidden_act", {"silu"});
  model.sliding_window_size = fields.is_null("sliding_window") ? 0 : 4096;
  fields.optional_size("sliding_window", model.sliding_window_size);
}

void read_gemma(Fields& fields, ModelConfig& model) {
  model.norm_gain_offset = 1;
  model.scale_embeddings = true;
  model.logits_via_embedding = true;
  model.activation = Activation::kGelu;
  read_llama_sizes(fields, {.kv_heads = 16, .head_dim = 256}, model);
  read_attention_bias(fields, model);
  // The first published files say "gelu", mean this, and are computed as either by one or the other transformers.
  fields.only("hidden_act", {"gelu_pytorch_tanh"});
  fields.only("hidden_activation", {"gelu_pytorch_tanh"});
}

void read_gpt2(Fields& fields, ModelConfig& model) {
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
  fields.only("activation_function", {"gelu_new", "gelu_pytorch_tanh"});
  fields.only("scale_attn_weights", {true});
  fields.only("scale_attn_by_inverse_layer_idx", {false});
  fields.only("add_cross_attention", {false});
}

struct Family {
  const char* model_type;
  void (*read)(Fields&, ModelConfig&);
};
constexpr Family kFamilies[] = {
    {"llama", read_llama}, {"mistral", read_mistral}, {"gemma", read_gemma}, {"gpt2", read_gpt2}};

absl::StatusOr<ModelConfig> parse(const json& config) {
  Fields fields(config);
  fields.only("model_type", {"llama", "mistral", "gemma", "gpt2"});
  if (!fields.has("model_type")) fields.fail("model_type", "missing");
  if (!fields.status().ok()) return fields.status();
  ModelConfig model;
  model.name = config.at("model_type").get<std::string>();
  for (const Family& family : kFamilies) {
    if (model.name == family.model_type) family.read(fields, model);
  }
  if (!fields.status().ok()) return fields.status();
  if (auto status = validate(model); !status.ok()) return status;
  return model;
}

}  // namespace

bool is_hugging_face_folder(const std::string& folder) {
  std::error_code error;
  return std::filesystem::exists(folder + "/" + kConfigFile, error);
}

absl::StatusOr<ModelConfig> read_hugging_face_config(const std::string& folder) {
  const std::string path = folder + "/" + kConfigFile;
  const auto config = read_json_file(path, kConfigBytesMax);
  if (!config.ok()) return config.status();
  if (!config->is_object())
    return absl::InvalidArgumentError(absl::StrCat(path, " is not a JSON object"));
  auto model = parse(*config);
  if (!model.ok())
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", model.status().message()));
  return model;
}

}  // namespace muster::trainer
