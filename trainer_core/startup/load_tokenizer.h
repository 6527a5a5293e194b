// Loads the tokenizer of a config.
#pragma once

#include <memory>

#include <absl/status/statusor.h>

#include "trainer_core/base/train_config.h"
#include "trainer_core/data/tokenizer.h"

namespace muster::trainer {

// Loads config.tokenizer_path, which must not be empty. Returns NotFound, or InvalidArgument with
// the path and the key if the file is not a tokenizer, is not of the type tokenizer_type, or has a
// larger vocabulary than the model.
absl::StatusOr<std::unique_ptr<Tokenizer>> load_tokenizer(const TrainConfig& config);

}  // namespace muster::trainer
