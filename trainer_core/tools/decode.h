// The command `muster-trainer decode`: generates text with the model of a checkpoint.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>

#include <absl/status/statusor.h>

#include "trainer_core/base/train_config.h"
#include "trainer_core/tools/sampling.h"

namespace muster::trainer {

// The maximum tokens of the prompt, and of the output. It bounds the size of the cache.
constexpr int32_t kDecodeTokensMax = 4096;

// The options of the command.
struct DecodeOptions {
  std::string checkpoint;  // folder of a checkpoint's step
  std::string prompt;
  int32_t max_tokens = 64;
  SamplingOptions sampling;
  int32_t threads = 1;
  std::ostream* notes = nullptr;  // receives notes about the tokenizer; not owned; null: none
};

// Returns the continuation of the prompt, which ends at the end-of-sequence token or after
// max_tokens tokens. `config` is that of the training; requires config.tokenizer_path. The prompt
// begins as the documents of the training did: with its own first token if the model was trained on
// shards, otherwise with an end-of-sequence token before it.
absl::StatusOr<std::string> decode(const TrainConfig& config, const DecodeOptions& options);

}  // namespace muster::trainer
