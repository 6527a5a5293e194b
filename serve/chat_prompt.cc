#include "serve/chat_prompt.h"

#include <utility>

#include <absl/strings/str_cat.h>

#include "trainer_core/data/control_token_encoder.h"

namespace muster::serve {
namespace {

// The maximum work of a rendering. It takes some tenths of a second, during which no other request
// is read. A conversation of 1 MB needs some 10 million units.
constexpr uint64_t kRenderingWorkMax = 1ULL << 26;

}  // namespace

absl::StatusOr<std::vector<int32_t>> chat_prompt(const ChatTemplate& chat_template,
                                                 const trainer::Tokenizer& tokenizer,
                                                 const nlohmann::ordered_json& messages) {
  if (!chat_template) {
    return absl::InvalidArgumentError(
        "the model has no chat template: use /v1/completions, or start the server with "
        "--chat-template FILE");
  }
  trainer::chat::RenderOptions options;
  options.work_max = kRenderingWorkMax;
  const auto rendered =
      chat_template->render(messages, nullptr, /*add_generation_prompt=*/true, options);
  if (!rendered.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the chat template cannot render messages: ", rendered.status().message()));
  }
  std::vector<int32_t> ids;
  const absl::Status status = trainer::ControlTokenEncoder(tokenizer).append(rendered->text, ids);
  if (!status.ok()) return status;
  if (ids.empty()) return absl::InvalidArgumentError("the chat template renders an empty prompt");
  return ids;
}

absl::StatusOr<ChatTemplate> load_chat_template(const std::string& file,
                                                const std::string& tokenizer_path,
                                                const trainer::Tokenizer& tokenizer) {
  auto loaded = trainer::chat::ChatTemplate::load(
      {.tokenizer_path = tokenizer_path,
       .file = file,
       .name = "",
       .bos_token = trainer::sequence_token(tokenizer, /*begins=*/true),
       .eos_token = trainer::sequence_token(tokenizer, /*begins=*/false)});
  if (loaded.ok()) return ChatTemplate(*std::move(loaded));
  if (file.empty() && absl::IsNotFound(loaded.status())) return ChatTemplate();
  return loaded.status();
}

}  // namespace muster::serve
