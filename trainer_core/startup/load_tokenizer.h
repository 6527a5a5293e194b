// Loads the tokenizer that a config names.
#pragma once

#include <memory>

#include <absl/status/statusor.h>

#include "trainer_core/base/train_config.h"
#include "trainer_core/data/tokenizer.h"

namespace muster::trainer {

// Requires: config.tokenizer_path is set. Errors: NotFound, or InvalidArgument if the file is not a
// tokenizer, is not of tokenizer_type, or has a larger vocabulary than the model; the message names
// the file and the key.
absl::StatusOr<std::unique_ptr<Tokenizer>> load_tokenizer(const TrainConfig& config);

}  // namespace muster::trainer
