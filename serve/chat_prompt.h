// Converts the messages of a chat to the tokens of a prompt, by the chat template of the model.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <absl/status/statusor.h>
#include <nlohmann/json.hpp>

#include "trainer_core/chat/chat_template.h"
#include "trainer_core/data/tokenizer.h"

namespace muster::serve {

// The chat template of a model; nullopt: the model has none.
using ChatTemplate = std::optional<trainer::chat::ChatTemplate>;

// Returns the tokens of `messages`, a list of objects with a role and a content, and of the
// beginning of the next answer. Returns InvalidArgument if the model has no template, or with the
// template's own error.
absl::StatusOr<std::vector<int32_t>> chat_prompt(const ChatTemplate& chat_template,
                                                 const trainer::Tokenizer& tokenizer,
                                                 const nlohmann::ordered_json& messages);

// Loads the template of a model: `file` if it is given, or else the template beside the tokenizer
// `tokenizer` at `tokenizer_path` (trainer_core/chat/chat_template.h). Returns nullopt if there is
// none.
absl::StatusOr<ChatTemplate> load_chat_template(const std::string& file,
                                                const std::string& tokenizer_path,
                                                const trainer::Tokenizer& tokenizer);

}  // namespace muster::serve
