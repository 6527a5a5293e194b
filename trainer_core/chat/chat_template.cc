#include "trainer_core/chat/chat_template.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>
#include <vector>

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include "common/random/fnv.h"
#include "trainer_core/base/json_file.h"
#include "trainer_core/chat/parser.h"

namespace muster::trainer::chat {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr size_t kTokenizerConfigBytesMax = 16 << 20;  // those with many added tokens have 1 MiB
constexpr const char* kSpecialTokens[] = {"bos_token", "eos_token", "unk_token", "pad_token",
                                          "sep_token", "cls_token", "mask_token"};

struct Source {
  std::string text;
  std::string path;
};

absl::StatusOr<std::string> read_template(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(absl::StrCat("cannot open the chat template ", path));
  std::string text;
  text.resize(kTemplateBytesMax + 1);
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  if (file.bad()) return absl::DataLossError(absl::StrCat("cannot read the chat template ", path));
  return text;
}

// Returns the template `name` of the value of chat_template.
absl::StatusOr<std::string> choose(const nlohmann::json& value, const std::string& name,
                                   const std::string& path) {
  if (value.is_string()) {
    if (name.empty() || name == "default") return value.get<std::string>();
    return absl::NotFoundError(
        absl::StrCat(path, " has one chat template without a name, not \"", name, "\""));
  }
  const std::string wanted = name.empty() ? "default" : name;
  std::vector<std::string> names;
  for (const auto& entry : value.is_array() ? value : nlohmann::json::array()) {
    if (!entry.is_object() || !entry.contains("name") || !entry["name"].is_string() ||
        !entry.contains("template") || !entry["template"].is_string()) {
      return absl::InvalidArgumentError(absl::StrCat(
          path, ": an entry of chat_template is no object with the texts name and template"));
    }
    names.push_back(entry["name"].get<std::string>());
    if (names.back() == wanted) return entry["template"].get<std::string>();
  }
  if (names.empty())
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": chat_template is neither a text nor a list of named templates"));
  return absl::NotFoundError(absl::StrCat(path, " has no chat template \"", wanted, "\"; it has \"",
                                          absl::StrJoin(names, "\", \""), "\""));
}

absl::StatusOr<Source> find_source(const ChatTemplateSource& source, const std::string& folder,
                                   const nlohmann::json& config, const std::string& config_path) {
  std::error_code error;
  std::string path = source.file;
  if (path.empty() && source.name.empty() && fs::exists(folder + "/chat_template.jinja", error))
    path = folder + "/chat_template.jinja";
  if (!path.empty()) {
    auto text = read_template(path);
    if (!text.ok()) return text.status();
    return Source{*std::move(text), path};
  }
  if (config.is_object() && config.contains("chat_template") &&
      !config["chat_template"].is_null()) {
    auto text = choose(config["chat_template"], source.name, config_path);
    if (!text.ok()) return text.status();
    return Source{*std::move(text), absl::StrCat("chat_template of ", config_path)};
  }
  return absl::NotFoundError(absl::StrCat("there is no chat template: neither ", folder,
                                          "/chat_template.jinja nor a chat_template in ",
                                          config_path, "; name a Jinja file"));
}

// Adds the special tokens of a file's object that `special` lacks. A token may be null.
void add_special_tokens(const nlohmann::json& file, ordered_json& special) {
  for (const char* const name : kSpecialTokens) {
    if (!file.is_object() || !file.contains(name) || special.contains(name)) continue;
    const auto& value = file[name];
    const auto& text = value.is_object() && value.contains("content") ? value["content"] : value;
    if (text.is_string()) special[name] = text.get<std::string>();
    if (text.is_null()) special[name] = nullptr;
  }
}

// Returns the object of a file beside the tokenizer, or null if there is no such file.
absl::StatusOr<nlohmann::json> read_if_present(const std::string& path) {
  std::error_code error;
  if (!fs::exists(path, error)) return nlohmann::json();
  return read_json_file(path, kTokenizerConfigBytesMax);
}

}  // namespace

absl::StatusOr<ChatTemplate> ChatTemplate::load(const ChatTemplateSource& source) {
  if (!source.file.empty() && !source.name.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--chat-template-name ", source.name, " selects a template of tokenizer_config.json, but ",
        "--chat-template ", source.file, " is a template itself; use one of the two"));
  }
  std::error_code error;
  const fs::path tokenizer(source.tokenizer_path);
  fs::path folder = fs::is_directory(tokenizer, error) ? tokenizer : tokenizer.parent_path();
  if (folder.empty()) folder = ".";
  const std::string config_path = (folder / "tokenizer_config.json").string();
  const auto config = read_if_present(config_path);
  if (!config.ok()) return config.status();
  const auto map = read_if_present((folder / "special_tokens_map.json").string());
  if (!map.ok()) return map.status();
  const auto found = find_source(source, folder.string(), *config, config_path);
  if (!found.ok()) return found.status();
  auto parsed = Template::parse(found->text);
  if (!parsed.ok())
    return absl::InvalidArgumentError(absl::StrCat(found->path, ": ", parsed.status().message()));
  ordered_json special = ordered_json::object();
  add_special_tokens(*config, special);
  add_special_tokens(*map, special);
  std::vector<std::string> unknown;
  for (const auto& [name, text] :
       {std::pair("bos_token", source.bos_token), std::pair("eos_token", source.eos_token)}) {
    if (special.contains(name)) continue;
    if (text.empty()) {
      unknown.emplace_back(name);
    } else {
      special[name] = text;
    }
  }
  for (const char* const name : kSpecialTokens) {
    if (special.contains(name) && special[name].is_null()) special.erase(name);
  }
  const uint64_t fingerprint = fnv1a(absl::StrCat(found->text, "\n", special.dump()));
  return ChatTemplate(*std::move(parsed), std::move(special), std::move(unknown), found->path,
                      fingerprint);
}

std::string ChatTemplate::special_token(const std::string& name) const {
  return special_.contains(name) ? special_[name].get<std::string>() : "";
}

absl::StatusOr<Rendered> ChatTemplate::render(const ordered_json& messages,
                                              const ordered_json& tools, bool add_generation_prompt,
                                              const RenderOptions& options) const {
  ordered_json variables = special_;
  variables["messages"] = messages;
  variables["tools"] = tools;
  variables["documents"] = nullptr;
  variables["add_generation_prompt"] = add_generation_prompt;
  RenderOptions with_tokens = options;
  with_tokens.required = unknown_tokens_;
  auto rendered = template_.render(variables, with_tokens);
  const bool lacks_token = std::ranges::any_of(unknown_tokens_, [&](const std::string& name) {
    return !rendered.ok() && absl::StrContains(rendered.status().message(),
                                               absl::StrCat("\"", name, "\" is undefined"));
  });
  if (!lacks_token) return rendered;
  return absl::InvalidArgumentError(
      absl::StrCat(rendered.status().message(),
                   ": neither tokenizer_config.json nor special_tokens_map.json states the token"));
}

}  // namespace muster::trainer::chat
