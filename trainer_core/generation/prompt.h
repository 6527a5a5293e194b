// Converts the text of a prompt to tokens.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include <absl/status/statusor.h>

#include "trainer_core/base/train_config.h"
#include "trainer_core/data/tokenizer.h"

namespace muster::trainer {

// Returns the tokens of a prompt. It begins as the documents of the training did: with its own
// first token if the model was trained on shards, otherwise with an end-of-sequence token before
// it. `config` is that of the training. Returns InvalidArgument if there is no token.
absl::StatusOr<std::vector<int32_t>> prompt_tokens(const TrainConfig& config,
                                                   const Tokenizer& tokenizer,
                                                   std::string_view text);

}  // namespace muster::trainer
