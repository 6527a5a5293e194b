// The command `muster-trainer decode`: generates text with the model of a checkpoint.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/statusor.h>

#include "trainer_core/base/train_config.h"
#include "trainer_core/generation/adapter_files.h"
#include "trainer_core/generation/sampling.h"
#include "trainer_core/ops/backend.h"

namespace muster::trainer {

// The maximum tokens of a prompt, and of the output: the longest contexts of models in use. It
// bounds the size of the cache.
constexpr int32_t kDecodeTokensMax = 1 << 17;

// The options of the command.
struct DecodeOptions {
  std::string checkpoint;  // folder of a checkpoint's step
  std::vector<std::string> prompts;
  std::vector<int32_t> lines;           // the line of each prompt in its file; empty: no file
  std::vector<uint64_t> seeds;          // the seed of each prompt; empty: that of `sampling`
  std::vector<AdapterFolder> adapters;  // computed beside the model
  // The name of each prompt's adapter, "" for the model alone; empty: the first adapter for all.
  std::vector<std::string> adapter_names;
  int32_t max_tokens = 64;
  // The token before each prompt; nullopt: as the model's texts begin.
  std::optional<int32_t> bos_id;
  bool add_bos = false;  // without bos_id, the model's first token also precedes each prompt
  // The tokens of a prompt with its output, above max_tokens: a longer prompt loses its beginning.
  // nullopt: no limit.
  std::optional<int32_t> length;
  SamplingOptions sampling;        // the same for every prompt
  std::vector<std::string> stops;  // strings that end the output and are not part of it
  // Those of each prompt; empty: `stops` for all.
  std::vector<std::vector<std::string>> prompt_stops;
  bool int8_cache = false;  // keys and values are stored as int8
  int32_t threads = 1;
  int32_t tensor_ranks = 1;          // processes that divide the model
  std::shared_ptr<Backend> backend;  // null: the CPU
  // Receives notes about the tokenizer and the parameters; not owned; null: none.
  std::ostream* notes = nullptr;
  // Called with each piece of the output of a prompt, as it is generated; may be empty.
  std::function<void(size_t prompt, std::string_view piece)> on_text;
};

// Returns the continuation of each prompt, which ends at the end-of-sequence token, before a stop
// string or after max_tokens tokens. `config` is that of the training; requires
// config.tokenizer_path. The other prompts change a continuation only through the rounding of sums,
// which may decide between tokens that are nearly equally likely.
absl::StatusOr<std::vector<std::string>> decode(const TrainConfig& config,
                                                const DecodeOptions& options);

}  // namespace muster::trainer
