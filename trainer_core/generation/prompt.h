// Converts the text of a prompt to tokens.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include <absl/status/statusor.h>

#include "trainer_core/data/text_start.h"

namespace muster::trainer {

// Returns the tokens of a prompt, which begins as the texts of the model do. Returns
// InvalidArgument if there is no token.
absl::StatusOr<std::vector<int32_t>> prompt_tokens(const TextStart& start,
                                                   const Tokenizer& tokenizer,
                                                   std::string_view text);

}  // namespace muster::trainer
