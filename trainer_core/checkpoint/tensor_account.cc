#include "trainer_core/checkpoint/tensor_account.h"

#include <algorithm>
#include <optional>

#include <absl/strings/match.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/strip.h>

#include "common/text/absl_view.h"
#include "common/text/escape.h"

namespace muster::trainer {
namespace {

// The names that an error lists.
constexpr size_t kNamesShown = 3;
constexpr size_t kNameBytesShown = 200;

// "model.layers.7.mlp.up_proj.bias" → layer 7, "mlp.up_proj.bias".
struct LayerName {
  int64_t layer = 0;
  std::string rest;
};

std::optional<LayerName> layer_name(std::string_view name, const ModelConfig& model) {
  absl::string_view text = av(name);
  const bool is_gpt2 = model.name == "gpt2";
  if (is_gpt2) absl::ConsumePrefix(&text, "transformer.");
  if (!absl::ConsumePrefix(&text, is_gpt2 ? "h." : "model.layers.")) return std::nullopt;
  const size_t dot = text.find('.');
  LayerName parsed;
  if (dot == absl::string_view::npos || !absl::SimpleAtoi(text.substr(0, dot), &parsed.layer) ||
      parsed.layer < 0)
    return std::nullopt;
  parsed.rest = std::string(text.substr(dot + 1));
  return parsed;
}

bool is_one_of(std::string_view text, std::initializer_list<std::string_view> values) {
  return std::find(values.begin(), values.end(), text) != values.end();
}

// The number after `prefix` in the name plus one, over all names: the count that would use them.
int64_t count_with(const std::vector<std::string>& names, const ModelConfig& model,
                   std::string_view of_experts) {
  int64_t count = 0;
  for (const std::string& name : names) {
    const auto parsed = layer_name(name, model);
    if (!parsed) continue;
    int64_t number = parsed->layer;
    if (!of_experts.empty()) {
      absl::string_view rest = parsed->rest;
      if (!absl::ConsumePrefix(&rest, av(of_experts)) ||
          !absl::SimpleAtoi(rest.substr(0, rest.find('.')), &number))
        continue;
    }
    count = std::max(count, number + 1);
  }
  return count;
}

constexpr std::string_view kExperts = "block_sparse_moe.experts.";

// Llama and Gemma have one switch for all four biases of attention.
std::string attention_bias_setting(const LayerName& name, const ModelConfig& model,
                                   const std::vector<std::string>& names) {
  if (!is_one_of(model.name, {"llama", "gemma"}) || model.qkv_bias) return "";
  const std::string of_output = absl::StrCat("model.layers.", name.layer, ".self_attn.o_proj.bias");
  // Qwen2's biases, which have no switch in these families.
  if (std::find(names.begin(), names.end(), of_output) == names.end()) return "";
  return "\"attention_bias\": true";
}

std::string layer_setting(const LayerName& name, const ModelConfig& model,
                          const std::vector<std::string>& names) {
  if (name.layer >= model.num_layers) {
    // A tensor that no layer of the model has is used by no number of layers.
    const auto is_in_first = [&](const std::string& other) {
      const auto parsed = layer_name(other, model);
      return parsed && parsed->layer == 0 && parsed->rest == name.rest;
    };
    if (std::none_of(names.begin(), names.end(), is_in_first)) return "";
    return absl::StrCat(model.name == "gpt2" ? "\"n_layer\": " : "\"num_hidden_layers\": ",
                        count_with(names, model, ""));
  }
  if (is_one_of(name.rest, {"self_attn.q_proj.bias", "self_attn.k_proj.bias",
                            "self_attn.v_proj.bias", "self_attn.o_proj.bias"}))
    return attention_bias_setting(name, model, names);
  if (is_one_of(name.rest, {"mlp.gate_proj.bias", "mlp.up_proj.bias", "mlp.down_proj.bias"}))
    return model.name == "llama" && !model.mlp_bias ? "\"mlp_bias\": true" : "";
  if (name.rest.starts_with(kExperts)) {
    return model.name == "mixtral"
               ? absl::StrCat("\"num_local_experts\": ", count_with(names, model, kExperts))
               : "\"model_type\": \"mixtral\"";
  }
  return "";
}

}  // namespace

size_t TensorAccount::ignored_count() const {
  size_t count = 0;
  for (const auto& [reason, tensors] : ignored) count += tensors;
  return count;
}

std::string ignorable_reason(std::string_view name, const std::vector<int64_t>& shape,
                             const ModelConfig& model) {
  if (model.name == "gpt2") {
    const auto parsed = layer_name(name, model);
    if (!parsed || parsed->layer >= model.num_layers) return "";
    const bool is_mask =
        shape.size() == 4 && shape[0] == 1 && shape[1] == 1 && shape[2] == shape[3];
    if (parsed->rest == "attn.bias" && is_mask) return "attn.bias: GPT-2's causal mask";
    const bool is_scalar = shape.empty() || shape == std::vector<int64_t>{1};
    if (parsed->rest == "attn.masked_bias" && is_scalar)
      return "attn.masked_bias: GPT-2's value of masked scores";
    return "";
  }
  if (shape.size() == 1 && model.has_rope() && absl::EndsWith(av(name), "rotary_emb.inv_freq"))
    return "rotary_emb.inv_freq: the frequencies of RoPE, which config.json determines";
  return "";
}

std::string setting_for(std::string_view name, const ModelConfig& model,
                        const std::vector<std::string>& names) {
  if (name == "lm_head.weight") return "\"tie_word_embeddings\": false";
  const auto parsed = layer_name(name, model);
  return parsed ? layer_setting(*parsed, model, names) : "";
}

absl::Status check_unused(const std::string& folder, std::string_view config_file,
                          const TensorAccount& account, UnusedTensorPolicy unused,
                          std::vector<std::string>& notes) {
  if (account.unused.empty()) return absl::OkStatus();
  const size_t count = account.unused.size();
  std::string text = absl::StrCat(count, " of ", account.used + account.ignored_count() + count,
                                  " tensors ", count == 1 ? "is" : "are",
                                  " not used by the model that ", av(config_file), " describes: ");
  std::map<std::string, size_t> settings;
  for (size_t i = 0; i < count; ++i) {
    const UnusedTensor& tensor = account.unused[i];
    if (!tensor.setting.empty()) ++settings[tensor.setting];
    if (i >= kNamesShown) continue;
    absl::StrAppend(&text, i == 0 ? "" : ", ", printable(tensor.name, kNameBytesShown), " (",
                    tensor.shape, tensor.why.empty() ? "" : ", ", tensor.why, ")");
  }
  if (count > kNamesShown) absl::StrAppend(&text, " and ", count - kNamesShown, " more");
  if (unused == UnusedTensorPolicy::kAllow) {
    notes.push_back(absl::StrCat(folder, ": ", text, "; left out, as --allow-unused permits"));
    return absl::OkStatus();
  }
  for (const auto& [setting, tensors] : settings)
    absl::StrAppend(&text, "; ", setting, " would use ", tensors, " of them");
  if (settings.empty()) absl::StrAppend(&text, "; no setting of this family uses them");
  return absl::InvalidArgumentError(
      absl::StrCat(folder, ": ", text, ". Without them this is another model: correct ",
                   av(config_file), ", or leave them out with muster convert --allow-unused"));
}

}  // namespace muster::trainer
