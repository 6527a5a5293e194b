#include "trainer_core/generation/prompt.h"

namespace muster::trainer {

absl::StatusOr<std::vector<int32_t>> prompt_tokens(const TextStart& start,
                                                   const Tokenizer& tokenizer,
                                                   std::string_view text) {
  auto tokens = tokenizer.encode(text);
  if (!tokens.ok()) return tokens.status();
  if (start.id >= 0 && (start.always || tokens->empty())) tokens->insert(tokens->begin(), start.id);
  if (tokens->empty()) return absl::InvalidArgumentError("the prompt is empty");
  return tokens;
}

}  // namespace muster::trainer
