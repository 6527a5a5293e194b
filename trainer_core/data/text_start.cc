#include "trainer_core/data/text_start.h"

#include <filesystem>
#include <optional>
#include <string>
#include <system_error>

#include <absl/strings/str_cat.h>
#include <absl/strings/strip.h>
#include <nlohmann/json.hpp>

#include "trainer_core/base/json_file.h"

namespace muster::trainer {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr size_t kStartConfigBytesMax = 1 << 20;

// Returns the object of a file; null if there is no such file. A dangling link is an error.
absl::StatusOr<json> object_of(const fs::path& path, size_t bytes_max) {
  std::error_code error;
  if (!fs::exists(fs::symlink_status(path, error))) return json();
  auto file = read_json_file(path.string(), bytes_max);
  if (file.ok() && !file->is_object())
    return absl::InvalidArgumentError(absl::StrCat(path.string(), " is not a JSON object"));
  return file;
}

// Returns the value of a field, or null.
json field(const json& object, const char* name) {
  return object.is_object() && object.contains(name) ? object.at(name) : json();
}

// Returns the id of a token's text; -1 if the tokenizer has no such token.
int32_t id_of(const Tokenizer& tokenizer, const std::string& text) {
  for (const auto& [control, id] : tokenizer.control_tokens())
    if (control == text) return id;
  const auto ids = tokenizer.encode(text);
  return ids.ok() && ids->size() == 1 ? ids->front() : -1;
}

// Returns the id of the first token that a post-processor puts before a text; -1: it puts none.
int32_t first_of_template(const json& processor) {
  const json type = field(processor, "type");
  if (type == "Sequence") {
    for (const json& part : field(processor, "processors")) {
      if (const int32_t id = first_of_template(part); id >= 0) return id;
    }
  }
  if (type != "TemplateProcessing") return -1;
  const json pieces = field(processor, "single");
  if (!pieces.is_array() || pieces.empty()) return -1;
  const json name = field(field(pieces.front(), "SpecialToken"), "id");
  if (!name.is_string()) return -1;
  const json tokens = field(processor, "special_tokens");
  const json ids = field(field(tokens, name.get<std::string>().c_str()), "ids");
  const bool has_id = ids.is_array() && !ids.empty() && ids.front().is_number_unsigned();
  return has_id ? ids.front().get<int32_t>() : -1;
}

// Returns whether a class of transformers has a beginning-of-sequence token by default; nullopt:
// the class leaves it to the post-processor.
std::optional<bool> adds_bos_by_default(const json& tokenizer_class) {
  if (!tokenizer_class.is_string()) return std::nullopt;
  const auto text = tokenizer_class.get<std::string>();
  const absl::string_view name = absl::StripSuffix(text, "Fast");
  for (const char* const llama : {"LlamaTokenizer", "CodeLlamaTokenizer", "GemmaTokenizer"})
    if (name == llama) return true;
  if (name == "GPTNeoXTokenizer") return false;
  return std::nullopt;
}

absl::StatusOr<TextStart> stated_start(const Tokenizer& tokenizer) {
  TextStart start{.id = tokenizer.bos_id(), .always = tokenizer.bos_id() >= 0};
  const auto end_before_texts = [&] {
    if (start.id < 0) start = {.id = tokenizer.eos_id(), .always = false};
    return start;
  };
  if (tokenizer.type() == "tiktoken") return end_before_texts();
  const fs::path folder = fs::path(tokenizer.file()).parent_path();
  const fs::path config_path = folder / "tokenizer_config.json";
  const auto config = object_of(config_path, kStartConfigBytesMax);
  if (!config.ok()) return config.status();
  const auto file = object_of(folder / "tokenizer.json", kTokenizerBytesMax);
  if (!file.ok()) return file.status();
  if (const json bos = field(*config, "bos_token"); !bos.is_null()) {
    const json text = bos.is_object() ? field(bos, "content") : bos;
    start.id = text.is_string() ? id_of(tokenizer, text.get<std::string>()) : -1;
    if (start.id < 0) {
      return absl::InvalidArgumentError(absl::StrCat(config_path.string(), ": bos_token is ",
                                                     show_json(text),
                                                     ", which is no token of the vocabulary"));
    }
  }
  const json adds = field(*config, "add_bos_token");
  const auto by_default = adds_bos_by_default(field(*config, "tokenizer_class"));
  if (!by_default && !file->is_null()) {
    const int32_t first = first_of_template(field(*file, "post_processor"));
    start.always = first >= 0;
    if (first >= 0) start.id = first;
  } else {
    start.always = adds.is_boolean() ? adds.get<bool>() : by_default.value_or(start.always);
  }
  if (start.id >= tokenizer.vocab_size()) {
    return absl::InvalidArgumentError(
        absl::StrCat((folder / "tokenizer.json").string(), ": post_processor adds the token id ",
                     start.id, "; the vocabulary has ", tokenizer.vocab_size(), " tokens"));
  }
  return end_before_texts();
}

}  // namespace

absl::StatusOr<TextStart> expected_text_start(const TrainConfig& config,
                                              const Tokenizer& tokenizer) {
  if (config.dataset_type == DatasetType::kShards)
    return TextStart{.id = tokenizer.eos_id(), .always = false};
  return stated_start(tokenizer);
}

}  // namespace muster::trainer
