#include "trainer_core/checkpoint/foreign/missing_tensor.h"

#include <algorithm>

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/strip.h>

#include "common/text/absl_view.h"

namespace muster::trainer {
namespace {

std::string without_weight(const std::string& name) {
  return std::string(absl::StripSuffix(name, ".weight"));
}

}  // namespace

std::string packed_beside(const std::string& name,
                          const std::function<bool(const std::string&)>& has) {
  for (const char* ending : {".absmax", ".quant_map", "_scale", "_scale_inv", "_zero_point"}) {
    if (has(name + ending)) return name + ending;
  }
  const std::string stem = without_weight(name);
  for (const char* ending : {".SCB", ".scales", ".qzeros", ".g_idx"}) {
    if (has(stem + ending)) return stem + ending;
  }
  return "";
}

std::string in_place_of(const std::string& name, const std::vector<std::string>& names) {
  if (name == "lm_head.weight")
    return "; \"tie_word_embeddings\": true would take the embeddings in its place";
  const auto has = [&](const std::string& other) {
    return std::find(names.begin(), names.end(), other) != names.end();
  };
  const std::string stem = without_weight(name);
  for (const char* ending : {".qweight", ".weight_packed", ".weight_scale", ".SCB"}) {
    if (has(stem + ending)) {
      return absl::StrCat("; there is ", stem, ending,
                          ", of a quantized model: take the original one");
    }
  }
  for (const std::string& other : names) {
    if (absl::EndsWith(other, absl::StrCat(".", name)))
      return absl::StrCat("; there is ", other, ": save the model without the wrapper around it");
  }
  // The same tensor in a model that has this one as a part, or without the head's class.
  absl::string_view tail = name;
  if (!absl::ConsumePrefix(&tail, "model.") && !absl::ConsumePrefix(&tail, "transformer."))
    return "";
  for (const std::string& other : names) {
    if (other == tail) {
      return absl::StrCat("; there is ", other,
                          ": save the model together with its head, as AutoModelForCausalLM does");
    }
    if (absl::EndsWith(other, absl::StrCat(".", tail)))
      return absl::StrCat("; there is ", other, ": take the language model out of this one");
  }
  return "";
}

std::string_view remedy_of_type(std::string_view dtype) {
  if (dtype == "F64") {
    return "save it in float32: AutoModelForCausalLM.from_pretrained(DIR, "
           "dtype=\"float32\").save_pretrained(NEW)";
  }
  return "dequantize the model with transformers, or take the original one";
}

}  // namespace muster::trainer
