#include "serve/chat_prompt.h"

#include <filesystem>
#include <fstream>
#include <iterator>

#include <absl/strings/str_cat.h>

#include "trainer_core/base/json_file.h"

namespace muster::serve {
namespace {

// The maximum size of a template, and of a tokenizer_config.json, which lists special tokens.
constexpr size_t kTemplateBytesMax = 1 << 20;
constexpr size_t kTokenizerConfigBytesMax = 16 << 20;

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
  if (!file.empty()) {
    std::ifstream in(file, std::ios::binary);
    if (!in) return absl::NotFoundError(absl::StrCat("--chat-template ", file, ": no such file"));
    std::string source(kTemplateBytesMax + 1, '\0');
    in.read(source.data(), static_cast<std::streamsize>(source.size()));
    source.resize(static_cast<size_t>(in.gcount()));
    if (source.size() > kTemplateBytesMax) {
      return absl::InvalidArgumentError(
          absl::StrCat("--chat-template ", file, ": larger than 1 MiB"));
    }
    return ChatTemplate{std::move(source)};
  }
  const std::filesystem::path path(tokenizer_path);
  std::error_code error;
  const auto folder = std::filesystem::is_directory(path, error) ? path : path.parent_path();
  const std::string config = folder / "tokenizer_config.json";
  if (!std::filesystem::exists(config, error)) return ChatTemplate{};
  const auto json = trainer::read_json_file(config, kTokenizerConfigBytesMax);
  if (!json.ok()) return json.status();
  const auto field = json->find("chat_template");
  if (field == json->end() || !field->is_string()) return ChatTemplate{};
  return ChatTemplate{field->get<std::string>()};
}

}  // namespace muster::serve
