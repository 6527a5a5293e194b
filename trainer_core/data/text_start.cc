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

constexpr char kTokenizerConfigFile[] = "tokenizer_config.json";
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

// The start of texts that a class of transformers has by default.
struct ClassStart {
  const char* name;
  bool adds_bos;
  const char* bos_token;
};
constexpr ClassStart kClassStarts[] = {{"LlamaTokenizer", true, "<s>"},
                                       {"CodeLlamaTokenizer", true, "<s>"},
                                       {"GemmaTokenizer", true, "<bos>"},
                                       {"GPTNeoXTokenizer", false, "<|endoftext|>"}};

// Returns the start of a class; null: the class leaves it to the post-processor.
const ClassStart* start_of_class(const json& tokenizer_class) {
  if (!tokenizer_class.is_string()) return nullptr;
  const auto text = tokenizer_class.get<std::string>();
  const absl::string_view name = absl::StripSuffix(text, "Fast");
  for (const ClassStart& start : kClassStarts)
    if (name == start.name) return &start;
  return nullptr;
}

// The text of a bos_token, which may be null, and the file that states it; no path: none states it.
struct StatedToken {
  json text;
  std::string path;
};

absl::StatusOr<StatedToken> stated_bos(const fs::path& folder, const json& config) {
  const auto text_in = [](const json& object) {
    const json bos = field(object, "bos_token");
    return bos.is_object() ? field(bos, "content") : bos;
  };
  if (config.is_object() && config.contains("bos_token"))
    return StatedToken{text_in(config), (folder / kTokenizerConfigFile).string()};
  const fs::path map_path = folder / "special_tokens_map.json";
  const auto map = object_of(map_path, kStartConfigBytesMax);
  if (!map.ok()) return map.status();
  if (!map->contains("bos_token")) return StatedToken{};
  return StatedToken{text_in(*map), map_path.string()};
}

// Returns first_of_template() of a tokenizer's tokenizer.json; nullopt: there is no such file. A
// damaged file is an error only if it is the tokenizer.
absl::StatusOr<std::optional<int32_t>> template_start(const Tokenizer& tokenizer,
                                                      const fs::path& folder) {
  const auto file = object_of(folder / "tokenizer.json", kTokenizerBytesMax);
  if (!file.ok() && tokenizer.type() == "huggingface") return file.status();
  if (!file.ok() || file->is_null()) return std::nullopt;
  const int32_t first = first_of_template(field(*file, "post_processor"));
  if (first < tokenizer.vocab_size()) return first;
  return absl::InvalidArgumentError(
      absl::StrCat((folder / "tokenizer.json").string(), ": post_processor adds the token id ",
                   first, "; the vocabulary has ", tokenizer.vocab_size(), " tokens"));
}

absl::StatusOr<TextStart> stated_start(const Tokenizer& tokenizer) {
  TextStart start{.id = tokenizer.bos_id(), .always = tokenizer.bos_id() >= 0};
  const auto end_before_texts = [&] {
    if (start.id < 0) start = {.id = tokenizer.eos_id(), .always = false};
    return start;
  };
  if (tokenizer.type() == "tiktoken") return end_before_texts();
  const fs::path folder = fs::path(tokenizer.file()).parent_path();
  const auto config = object_of(folder / kTokenizerConfigFile, kStartConfigBytesMax);
  if (!config.ok()) return config.status();
  const auto bos = stated_bos(folder, *config);
  if (!bos.ok()) return bos.status();
  const ClassStart* by_class = start_of_class(field(*config, "tokenizer_class"));
  if (!bos->text.is_null()) {
    start.id = bos->text.is_string() ? id_of(tokenizer, bos->text.get<std::string>()) : -1;
  } else if (bos->path.empty() && by_class != nullptr && start.id < 0) {
    start.id = id_of(tokenizer, by_class->bos_token);
  }
  const json adds = field(*config, "add_bos_token");
  if (by_class != nullptr) start.always = by_class->adds_bos;
  if (adds.is_boolean()) start.always = adds.get<bool>();
  const bool is_unnamed = bos->path.empty() && start.always && start.id < 0;
  if (by_class == nullptr || is_unnamed) {
    const auto first = template_start(tokenizer, folder);
    if (!first.ok()) return first.status();
    if (first->has_value() && **first >= 0) start.id = **first;
    if (first->has_value() && by_class == nullptr) start.always = **first >= 0;
  }
  if (start.always && start.id < 0 && !bos->text.is_null()) {
    return absl::InvalidArgumentError(absl::StrCat(bos->path, ": bos_token is ",
                                                   show_json(bos->text),
                                                   ", which is no token of the vocabulary"));
  }
  return end_before_texts();
}

}  // namespace

absl::StatusOr<TextStart> expected_text_start(const TrainConfig& config,
                                              const Tokenizer& tokenizer) {
  if (config.dataset_type == DatasetType::kShards) {
    if (config.sample_begin_id >= 0 && config.sample_begin_id < tokenizer.vocab_size())
      return TextStart{.id = config.sample_begin_id, .always = true};
    return TextStart{.id = tokenizer.eos_id(), .always = false};
  }
  return stated_start(tokenizer);
}

}  // namespace muster::trainer
