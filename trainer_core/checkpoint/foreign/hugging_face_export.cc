#include "trainer_core/checkpoint/foreign/hugging_face_export.h"

#include <algorithm>

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>

#include "trainer_core/checkpoint/foreign/rotary_rows.h"
#include "trainer_core/checkpoint/parameter_source.h"

namespace muster::trainer {
namespace {

using nlohmann::ordered_json;

// The value of max_position_embeddings if the maximum sequence length is unknown: that of Llama 2.
constexpr int32_t kUsualMaxPosition = 4096;

// Returns the name for `hidden_act`. If Hugging Face has none, the name is ours, so that the check
// of the exported config fails with an error about it.
std::string_view name_of(Activation activation) {
  const ActivationRow& row = row_of(activation);
  return row.hugging_face.front().empty() ? row.name : row.hugging_face.front();
}

ordered_json llama_like(const ModelConfig& model, int32_t max_position) {
  ordered_json config = {{"hidden_size", model.emb_dim},
                         {"intermediate_size", model.mlp_dim},
                         {"num_hidden_layers", model.num_layers},
                         {"num_attention_heads", model.num_query_heads},
                         {"num_key_value_heads", model.num_kv_heads},
                         {"head_dim", model.head_dim},
                         {"max_position_embeddings", max_position},
                         {"rms_norm_eps", model.norm_epsilon},
                         {"rope_theta", model.rope_max_timescale}};
  const RopeScaling& scaling = model.rope_scaling;
  if (scaling.factor != 1) {
    config["rope_scaling"] = {{"rope_type", "llama3"},
                              {"factor", scaling.factor},
                              {"low_freq_factor", scaling.low_frequency_factor},
                              {"high_freq_factor", scaling.high_frequency_factor},
                              {"original_max_position_embeddings", scaling.original_max_position}};
  }
  return config;
}

ordered_json llama(const ModelConfig& model, int32_t max_position) {
  ordered_json config = llama_like(model, max_position);
  config["hidden_act"] = name_of(model.activation);
  config["attention_bias"] = model.qkv_bias;
  config["mlp_bias"] = model.mlp_bias;
  return config;
}

ordered_json window_of(const ModelConfig& model) {
  return model.sliding_window_size > 0 ? ordered_json(model.sliding_window_size)
                                       : ordered_json(nullptr);
}

ordered_json mistral(const ModelConfig& model, int32_t max_position) {
  ordered_json config = llama_like(model, max_position);
  config["hidden_act"] = name_of(model.activation);
  config["sliding_window"] = window_of(model);
  return config;
}

ordered_json mixtral(const ModelConfig& model, int32_t max_position) {
  ordered_json config = mistral(model, max_position);
  config["intermediate_size"] = model.experts.mlp_dim;
  config["hidden_act"] = name_of(model.experts.activation);
  config["num_local_experts"] = model.experts.count;
  config["num_experts_per_tok"] = model.experts.per_token;
  config["router_aux_loss_coef"] = model.experts.balance_weight;
  return config;
}

ordered_json gemma(const ModelConfig& model, int32_t max_position) {
  ordered_json config = llama_like(model, max_position);
  config["hidden_act"] = "gelu_pytorch_tanh";
  config["hidden_activation"] = "gelu_pytorch_tanh";
  config["attention_bias"] = model.qkv_bias;
  return config;
}

ordered_json gpt2(const ModelConfig& model, int32_t /*max_position*/) {
  return {{"n_embd", model.emb_dim},
          {"n_inner", model.mlp_dim},
          {"n_layer", model.num_layers},
          {"n_head", model.num_query_heads},
          {"n_positions", model.trainable_position_size},
          {"layer_norm_epsilon", model.norm_epsilon},
          {"activation_function", name_of(model.activation)}};
}

struct Architecture {
  const char* model_type;
  const char* name;
  ordered_json (*config)(const ModelConfig&, int32_t max_position);
};
constexpr Architecture kLlama = {"llama", "LlamaForCausalLM", llama};
constexpr Architecture kMistral = {"mistral", "MistralForCausalLM", mistral};
constexpr Architecture kMixtral = {"mixtral", "MixtralForCausalLM", mixtral};
constexpr Architecture kGemma = {"gemma", "GemmaForCausalLM", gemma};
constexpr Architecture kGpt2 = {"gpt2", "GPT2LMHeadModel", gpt2};

// Returns the architecture that has those features of the model that other architectures lack. The
// check of the exported config verifies all other features.
const Architecture& nearest_architecture(const ModelConfig& model) {
  if (model.norm_type == NormType::kLayer) return kGpt2;
  if (model.experts.count > 1) return kMixtral;
  if (model.scale_embeddings || model.norm_gain_offset != 0) return kGemma;
  return model.sliding_window_size > 0 ? kMistral : kLlama;
}

bool is_norm_gain(const std::string& name) {
  for (const char* end : {"ln_1.weight", "ln_2.weight", "ln_f.weight"}) {
    if (absl::EndsWith(name, end)) return true;
  }
  return false;
}

bool is_query_or_key(const std::string& name) {
  return absl::StrContains(name, ".self_attn.q_proj.") ||
         absl::StrContains(name, ".self_attn.k_proj.");
}

}  // namespace

void HuggingFaceExport::adapt(const HuggingFaceTensor& tensor, std::span<float> ours) const {
  if (splits_pairs && is_query_or_key(tensor.name)) {
    const int64_t columns = tensor.shape.size() > 1 ? tensor.shape[1] : 1;
    split_rotary_pairs(ours, head_dim, columns);
  }
  if (adds_one_to_gains && is_norm_gain(tensor.name)) {
    for (float& gain : ours) gain = 1.0F + gain;
  }
}

absl::StatusOr<HuggingFaceExport> export_to_hugging_face(const ModelConfig& model,
                                                         int32_t max_position,
                                                         const nlohmann::json& token_ids) {
  HuggingFaceExport result;
  ModelConfig adapted = model;
  result.head_dim = model.head_dim;
  result.splits_pairs = model.position_type == PositionType::kRopeInterleaved;
  if (result.splits_pairs) adapted.position_type = PositionType::kRope;
  result.adds_one_to_gains = model.norm_type == NormType::kLayer && model.norm_gain_offset == 1;
  if (result.adds_one_to_gains) adapted.norm_gain_offset = 0;

  const Architecture& architecture = nearest_architecture(adapted);
  result.config = {{"architectures", {architecture.name}},
                   {"model_type", architecture.model_type},
                   {"vocab_size", model.vocab_size}};
  const int32_t length = max_position > 0 ? max_position : kUsualMaxPosition;
  result.config.update(architecture.config(adapted, length));
  result.config["tie_word_embeddings"] = model.logits_via_embedding;
  // Missing fields would get transformers' defaults, which are those of another model.
  for (const char* name : kTokenIdFields)
    result.config[name] = token_ids.value(name, nlohmann::json());

  const auto back = parse_hugging_face_config(nlohmann::json(result.config));
  const std::string advice =
      absl::StrCat("; the architectures that can be written are ", kHuggingFaceFamilies);
  if (!back.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("as ", architecture.name, ", config.json's ",
                                                   back.status().message(), advice));
  }
  if (const auto difference = first_difference(adapted, back->model)) {
    return absl::InvalidArgumentError(
        absl::StrCat("no Hugging Face architecture supports this model: its ", difference->key,
                     " is ", difference->a, ", and the nearest one, ", architecture.name, ", has ",
                     difference->b, advice));
  }
  result.tensors = hugging_face_tensors(adapted, model_params(model));
  return result;
}

}  // namespace muster::trainer
