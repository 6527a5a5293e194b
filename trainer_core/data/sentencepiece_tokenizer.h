// Loads a tokenizer from a SentencePiece model.
#pragma once

#include <memory>
#include <string_view>

#include <absl/status/statusor.h>

#include "trainer_core/data/tokenizer.h"

namespace muster::trainer {

// Returns InvalidArgument if `bytes` are not a model.
absl::StatusOr<std::unique_ptr<Tokenizer>> load_sentencepiece(std::string_view bytes);

}  // namespace muster::trainer
