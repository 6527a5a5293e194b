// `muster-trainer decode`: text from a checkpoint.
#pragma once

#include <cstdint>
#include <string>

#include <absl/status/statusor.h>

#include "trainer_core/base/train_config.h"
#include "trainer_core/tools/sampling.h"

namespace muster::trainer {

// Of the prompt, and of the output: what the cache is made for.
constexpr int32_t kDecodeTokensMax = 4096;

struct DecodeOptions {
  std::string checkpoint;  // a step's folder
  std::string prompt;
  int32_t max_tokens = 64;
  SamplingOptions sampling;
  int32_t threads = 1;
};

// The continuation of the prompt, up to max_tokens or the end-of-sequence token. Needs config.tokenizer_path. The prompt
// begins as a document of the model's training did: with its own first token where it learned from shards, else behind an
// end-of-sequence token.
absl::StatusOr<std::string> decode(const TrainConfig& config, const DecodeOptions& options);

}  // namespace muster::trainer
