// The tokenizer that a config names.
#pragma once

#include <memory>

#include <absl/status/statusor.h>

#include "trainer_core/base/train_config.h"
#include "trainer_core/data/tokenizer.h"

namespace muster::trainer {

// Requires a tokenizer_path. NotFound, or InvalidArgument for a file that is no tokenizer, is none of tokenizer_type, or has
// another vocabulary than the model; the message names the file and the key.
absl::StatusOr<std::unique_ptr<Tokenizer>> load_tokenizer(const TrainConfig& config);

}  // namespace muster::trainer
