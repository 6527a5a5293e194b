// Chooses the next token from logits.
#pragma once

#include <cstdint>
#include <span>

namespace muster::trainer {

struct SamplingOptions {
  double temperature = 0;  // 0: greedy, the likeliest token
  int32_t top_k = 0;       // only the k likeliest; 0: all
  // Only the likeliest tokens that together have this probability (Holtzman et al., 2020).
  double top_p = 1;
  uint64_t seed = 0;
};

// Returns the token at `position` of the output; depends on its arguments only.
int32_t sample_token(std::span<const float> logits, const SamplingOptions& options,
                     uint64_t position);

}  // namespace muster::trainer
