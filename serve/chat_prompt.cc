#include "serve/chat_prompt.h"

#include <filesystem>
#include <fstream>
#include <utility>

#include <absl/strings/str_cat.h>

#include "trainer_core/base/json_file.h"

namespace muster::serve {
namespace {

// The maximum size of a template, and of a tokenizer_config.json, which lists special tokens.
constexpr size_t kTemplateBytesMax = 1 << 20;
constexpr size_t kTokenizerConfigBytesMax = 16 << 20;

absl::StatusOr<std::string> read_template_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return absl::NotFoundError(absl::StrCat("--chat-template ", path, ": no such file"));
  std::string source(kTemplateBytesMax + 1, '\0');
  in.read(source.data(), static_cast<std::streamsize>(source.size()));
  source.resize(static_cast<size_t>(in.gcount()));
  if (source.size() > kTemplateBytesMax)
    return absl::InvalidArgumentError(
        absl::StrCat("--chat-template ", path, ": larger than 1 MiB"));
  return source;
}

// Returns the text of a token: the field is a text, or an object with the text and its properties.
std::string token_in(const nlohmann::json& config, const char* name) {
  auto field = config.find(name);
  if (field == config.end()) return "";
  if (field->is_object()) {
    const auto content = field->find("content");
    return content != field->end() && content->is_string() ? content->get<std::string>() : "";
  }
  return field->is_string() ? field->get<std::string>() : "";
}

}  // namespace

absl::StatusOr<std::string> chat_prompt(const ChatTemplate& chat_template,
                                        const nlohmann::ordered_json& /*messages*/) {
  if (chat_template.source.empty()) {
    return absl::InvalidArgumentError(
        "the model has no chat template: use /v1/completions, or start the server with "
        "--chat-template FILE");
  }
  return absl::UnimplementedError(
      "this build cannot render chat templates: use /v1/completions with the text of the prompt");
}

absl::StatusOr<ChatTemplate> read_chat_template(const std::string& file,
                                                const std::string& tokenizer_path) {
  ChatTemplate result;
  if (!file.empty()) {
    auto source = read_template_file(file);
    if (!source.ok()) return source.status();
    result.source = *std::move(source);
  }
  const std::filesystem::path path(tokenizer_path);
  std::error_code error;
  const auto folder = std::filesystem::is_directory(path, error) ? path : path.parent_path();
  const std::string config = folder / "tokenizer_config.json";
  if (!std::filesystem::exists(config, error)) return result;
  const auto json = trainer::read_json_file(config, kTokenizerConfigBytesMax);
  if (!json.ok()) return json.status();
  if (!json->is_object()) return result;
  const auto field = json->find("chat_template");
  if (file.empty() && field != json->end() && field->is_string())
    result.source = field->get<std::string>();
  result.bos_token = token_in(*json, "bos_token");
  result.eos_token = token_in(*json, "eos_token");
  return result;
}

}  // namespace muster::serve
