// Chooses the next token from logits.
#pragma once

#include <cstdint>
#include <span>

namespace muster::trainer {

// The options of sampling.
struct SamplingOptions {
  double temperature = 0;  // 0: greedy, always the most likely token
  int32_t top_k = 0;       // sample from the k most likely tokens; 0: from all
  // Sample from the most likely tokens that together have this probability (nucleus sampling;
  // Holtzman et al., 2020).
  double top_p = 1;
  uint64_t seed = 0;
};

// Returns the token at `position` of the output. The result depends on the arguments only.
int32_t sample_token(std::span<const float> logits, const SamplingOptions& options,
                     uint64_t position);

}  // namespace muster::trainer
