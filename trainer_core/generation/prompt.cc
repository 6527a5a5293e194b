#include "trainer_core/generation/prompt.h"

namespace muster::trainer {

absl::StatusOr<std::vector<int32_t>> prompt_tokens(const TrainConfig& config,
                                                   const Tokenizer& tokenizer,
                                                   std::string_view text) {
  auto tokens = tokenizer.encode(text);
  if (!tokens.ok()) return tokens.status();
  const int32_t eos_id = tokenizer.eos_id();
  // A document in shards begins with its own first token (data/samples.h).
  const bool begins_after_eos = config.dataset_type != DatasetType::kShards || tokens->empty();
  if (eos_id >= 0 && begins_after_eos) tokens->insert(tokens->begin(), eos_id);
  if (tokens->empty()) return absl::InvalidArgumentError("the prompt is empty");
  return tokens;
}

}  // namespace muster::trainer
