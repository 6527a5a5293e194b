// Converts the messages of a chat to the text of a prompt, by the chat template of the model.
#pragma once

#include <string>

#include <absl/status/statusor.h>
#include <nlohmann/json.hpp>

namespace muster::serve {

// The chat template of a model, in the form of Hugging Face's tokenizer_config.json.
struct ChatTemplate {
  std::string source;  // in Jinja; empty: the model has no template
  // The texts of the tokens that begin and end a text, which templates use; empty: not known.
  std::string bos_token{};
  std::string eos_token{};
};

// Returns the prompt of `messages`, a list of objects with a role and a content, and the beginning
// of the next answer. Returns InvalidArgument if the model has no template, or with the template's
// own error.
absl::StatusOr<std::string> chat_prompt(const ChatTemplate& chat_template,
                                        const nlohmann::ordered_json& messages);

// Reads the template of a model: `file` if it is given, or else the field chat_template of the
// tokenizer_config.json beside the tokenizer `tokenizer_path`. That file also has the
// tokens. Returns an empty template if there is none.
absl::StatusOr<ChatTemplate> read_chat_template(const std::string& file,
                                                const std::string& tokenizer_path);

}  // namespace muster::serve
