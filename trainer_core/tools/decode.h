// `muster-trainer decode`: generates text from a checkpoint.
#pragma once

#include <cstdint>
#include <string>

#include <absl/status/statusor.h>

#include "trainer_core/base/train_config.h"
#include "trainer_core/tools/sampling.h"

namespace muster::trainer {

// The maximum length of the prompt, and of the output; bounds the size of the cache.
constexpr int32_t kDecodeTokensMax = 4096;

struct DecodeOptions {
  std::string checkpoint;  // a step's folder
  std::string prompt;
  int32_t max_tokens = 64;
  SamplingOptions sampling;
  int32_t threads = 1;
};

// Returns the continuation of the prompt, up to max_tokens or the end-of-sequence token. Requires
// config.tokenizer_path. The prompt begins like a document of the model's training: with its own
// first token if the model was trained on shards, otherwise after an end-of-sequence token.
absl::StatusOr<std::string> decode(const TrainConfig& config, const DecodeOptions& options);

}  // namespace muster::trainer
