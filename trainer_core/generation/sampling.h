// Chooses the next token from logits, and computes log-probabilities. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

namespace muster::trainer {

// The options of sampling, in the order in which they apply.
struct SamplingOptions {
  // Divides positive logits of tokens that the text already has, including its prompt, and
  // multiplies negative ones (Keskar et al., "CTRL", 2019). 1: off.
  double repetition_penalty = 1;
  // Subtracted from the logits of tokens of the output: once, and for each occurrence.
  double presence_penalty = 0;
  double frequency_penalty = 0;
  std::map<int32_t, double> logit_bias{};  // added to logits, by token
  double temperature = 0;                  // 0: greedy, always the most likely token
  int32_t top_k = 0;                       // sample from the k most likely tokens; 0: from all
  // Sample from the most likely tokens that together have this probability (nucleus sampling;
  // Holtzman et al., 2020).
  double top_p = 1;
  // Sample from tokens with at least this fraction of the probability of the most likely one.
  double min_p = 0;
  uint64_t seed = 0;
};

// The tokens so far.
struct TokenHistory {
  std::span<const int32_t> tokens;  // prompt, then output
  size_t prompt = 0;                // tokens of the prompt
};

// Returns the next token. The result depends on the arguments only: the random number is that of
// the seed and of the position in the output. Changes `logits` (scratch).
int32_t sample_token(std::span<float> logits, const SamplingOptions& options,
                     const TokenHistory& history);

// A token and the logarithm of its probability.
struct TokenLogprob {
  int32_t token = 0;
  float logprob = 0;
};

// The log-probabilities at one position.
struct PositionLogprobs {
  TokenLogprob chosen;
  std::vector<TokenLogprob> top{};  // the most likely tokens, the likeliest first
};

// Returns the log-probabilities of `token` and of the `top` most likely tokens below `ids`.
// `logits` has all ids of the model.
PositionLogprobs position_logprobs(std::span<const float> logits, int32_t token, int32_t top,
                                   int32_t ids);

}  // namespace muster::trainer
