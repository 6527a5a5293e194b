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

// Fields by type, with the first complaint remembered. A field that is null counts as left out.
class Fields {
 public:
  explicit Fields(const json& config) : config_(config) {}

  bool has(std::string_view name) const {
    const auto found = config_.find(std::string(name));
    return found != config_.end() && !found->is_null();
  }
  void size(std::string_view name, int32_t& out) {
    if (!has(name)) return fail(name, "missing");
    optional_size(name, out);
  }
  void optional_size(std::string_view name, int32_t& out) {
    if (!has(name)) return;
    const json& value = at(name);
    if (!value.is_number_unsigned() || value.get<uint64_t>() < 1 ||
        value.get<uint64_t>() > std::numeric_limits<int32_t>::max()) {
      return fail(name, absl::StrCat(value.dump(), ", but must be a positive whole number"));
    }
    out = value.get<int32_t>();
  }
  void optional_number(std::string_view name, double& out) {
    if (!has(name)) return;
    if (!at(name).is_number()) return fail(name, absl::StrCat(at(name).dump(), ", no number"));
    out = at(name).get<double>();
  }
  void optional_flag(std::string_view name, bool& out) {
    if (!has(name)) return;
    if (!at(name).is_boolean())
      return fail(name, absl::StrCat(at(name).dump(), ", but must be true or false"));
    out = at(name).get<bool>();
  }
  // Refuses whatever is not among `allowed`; a field that is left out passes.
  void only(std::string_view name, std::initializer_list<json> allowed) {
    if (!has(name)) return;
    std::string wanted;
    for (const json& value : allowed) {
      if (at(name) == value) return;
      absl::StrAppend(&wanted, wanted.empty() ? "" : " or ", value.dump());
    }
    fail(name, absl::StrCat(at(name).dump(), "; this trainer runs ",
                            wanted.empty() ? "this family without it" : wanted));
  }
  Fields group(std::string_view name) const { return Fields(at(name)); }

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
  const json& at(std::string_view name) const { return config_.at(std::string(name)); }

  const json& config_;
  absl::Status status_;
};

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

void read_rope_scaling(Fields& fields, RopeScaling& scaling) {
  if (!fields.has("rope_scaling")) return;
  Fields group = fields.group("rope_scaling");
  const char* kind = group.has("rope_type") ? "rope_type" : "type";
  group.only(kind, {"llama3", "default"});
  group.optional_number("factor", scaling.factor);
  group.optional_number("low_freq_factor", scaling.low_frequency_factor);
  group.optional_number("high_freq_factor", scaling.high_frequency_factor);
  group.optional_size("original_max_position_embeddings", scaling.original_max_position);
  fields.take(group, "rope_scaling");
}

// What Llama, Mistral and Gemma share.
void read_llama_sizes(Fields& fields, ModelConfig& model) {
  fields.size("vocab_size", model.vocab_size);
  fields.size("hidden_size", model.emb_dim);
  fields.size("intermediate_size", model.mlp_dim);
  fields.size("num_hidden_layers", model.num_layers);
  fields.size("num_attention_heads", model.num_query_heads);
  model.num_kv_heads = model.num_query_heads;
  fields.optional_size("num_key_value_heads", model.num_kv_heads);
  read_head_dim(fields, "hidden_size", "num_attention_heads", model);
  fields.optional_number("rms_norm_eps", model.norm_epsilon);
  fields.optional_number("rope_theta", model.rope_max_timescale);
  fields.optional_flag("tie_word_embeddings", model.logits_via_embedding);
  bool attention_bias = false;
  fields.optional_flag("attention_bias", attention_bias);
  model.qkv_bias = model.out_bias = attention_bias;
}

void read_llama(Fields& fields, ModelConfig& model) {
  model.norm_epsilon = 1e-6;
  read_llama_sizes(fields, model);
  fields.optional_flag("mlp_bias", model.mlp_bias);
  fields.only("hidden_act", {"silu"});
  read_rope_scaling(fields, model.rope_scaling);
}

void read_mistral(Fields& fields, ModelConfig& model) {
  read_llama(fields, model);
  fields.optional_size("sliding_window", model.sliding_window_size);
}

void read_gemma(Fields& fields, ModelConfig& model) {
  model.norm_epsilon = 1e-6;
  model.norm_gain_offset = 1;
  model.scale_embeddings = true;
  model.logits_via_embedding = true;
  model.activation = Activation::kGelu;
  model.head_dim = 256;
  read_llama_sizes(fields, model);
  // The first files say "gelu" and were trained with the approximation, which transformers therefore uses.
  fields.only("hidden_act", {"gelu_pytorch_tanh", "gelu"});
  fields.only("hidden_activation", {"gelu_pytorch_tanh"});
  fields.only("rope_scaling", {});
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
  fields.optional_number("layer_norm_epsilon", model.norm_epsilon);
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
