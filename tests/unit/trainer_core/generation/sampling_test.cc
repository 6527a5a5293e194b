#include "trainer_core/generation/sampling.h"

#include <array>
#include <cmath>
#include <set>

#include <gtest/gtest.h>

namespace muster::trainer {
namespace {

constexpr std::array<float, 4> kLogits = {1.0F, 3.0F, 2.0F, -50.0F};

// Samples the token at a position of the output.
int32_t sample(std::span<const float> logits, const SamplingOptions& options, uint64_t position) {
  std::vector<float> scratch(logits.begin(), logits.end());
  const std::vector<int32_t> tokens(position);
  return sample_token(scratch, options, {tokens, 0});
}

std::set<int32_t> seen(const SamplingOptions& options) {
  std::set<int32_t> tokens;
  for (uint64_t i = 0; i < 2000; ++i) tokens.insert(sample(kLogits, options, i));
  return tokens;
}

TEST(Sampling, GreedyTakesTheLikeliest) { EXPECT_EQ(seen({}), (std::set<int32_t>{1})); }

// Pearson's chi-square of 20,000 draws from 200 tokens, at a temperature: above 276 with a
// probability of 2e-4.
TEST(Sampling, FrequenciesFollowTheSoftmax) {
  constexpr int kDraws = 20'000;
  constexpr double kTemperature = 1.7;
  std::vector<float> logits;
  for (int i = 0; i < 200; ++i) logits.push_back(static_cast<float>(std::sin(i * 37) * 2));
  double total = 0;
  for (const float logit : logits) total += std::exp(logit / kTemperature);
  // The order of a nucleus of all tokens differs from that of ids, but not its distribution.
  for (const double top_p : {1.0, 0.9999999}) {
    std::vector<int> counts(logits.size());
    for (uint64_t i = 0; i < kDraws; ++i)
      ++counts[static_cast<size_t>(
          sample(logits, {.temperature = kTemperature, .top_p = top_p}, i))];
    double chi_square = 0;
    for (size_t i = 0; i < logits.size(); ++i) {
      const double expected = kDraws * std::exp(logits[i] / kTemperature) / total;
      chi_square += (counts[i] - expected) * (counts[i] - expected) / expected;
    }
    EXPECT_LT(chi_square, 276) << top_p;
    EXPECT_GT(chi_square, 135) << top_p;
  }
}

TEST(Sampling, TopKTopPAndMinPCutTheTail) {
  const auto cut = [](int32_t top_k, double top_p, double min_p) {
    return seen({.temperature = 1, .top_k = top_k, .top_p = top_p, .min_p = min_p});
  };
  EXPECT_EQ(cut(0, 1, 0), (std::set<int32_t>{0, 1, 2}));
  EXPECT_EQ(cut(2, 1, 0), (std::set<int32_t>{1, 2}));
  EXPECT_EQ(cut(0, 0.7, 0), (std::set<int32_t>{1, 2}));
  EXPECT_EQ(cut(0, 0, 0), (std::set<int32_t>{1}));
  EXPECT_EQ(cut(0, 1, 0.3), (std::set<int32_t>{1, 2}));
  EXPECT_EQ(cut(0, 1, 1), (std::set<int32_t>{1}));
  EXPECT_EQ(cut(3, 0.99, 0.1), (std::set<int32_t>{0, 1, 2}));
}

// The sorted part grows with the nucleus.
TEST(Sampling, ALargeNucleusHasTheLikeliestTokens) {
  std::vector<float> logits(1000);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = i % 2 == 0 ? 1.0F : 0.99F;
  std::set<int32_t> tokens;
  for (uint64_t i = 0; i < 4000; ++i)
    tokens.insert(sample(logits, {.temperature = 1, .top_p = 0.5}, i));
  EXPECT_GT(tokens.size(), 490U);
  for (const int32_t token : tokens) EXPECT_EQ(token % 2, 0);
}

TEST(Sampling, PenaltiesAndBiasesChangeLogits) {
  const std::vector<int32_t> tokens = {1, 2, 2, 0};  // the prompt is {1}
  const auto greedy = [&](const SamplingOptions& options, std::vector<float> logits) {
    const int32_t token = sample_token(logits, options, {tokens, 1});
    return std::pair(token, logits);
  };
  const std::vector<float> logits = {1, 3, 2, -50};
  using Logits = std::vector<float>;
  EXPECT_EQ(greedy({.repetition_penalty = 4}, {1, 3, -2, -50}),
            (std::pair(1, Logits{0.25F, 0.75F, -8, -50})));
  EXPECT_EQ(greedy({.presence_penalty = 0.5}, logits).second, (Logits{0.5F, 3, 1.5F, -50}));
  EXPECT_EQ(greedy({.frequency_penalty = 0.5}, logits).second, (Logits{0.5F, 3, 1, -50}));
  EXPECT_EQ(greedy({.logit_bias = {{3, 100}, {7, 1}}}, logits),
            (std::pair(3, Logits{1, 3, 2, 50})));
}

TEST(Sampling, TheSeedDecides) {
  int same = 0;
  const auto token = [](uint64_t seed, uint64_t i) {
    return sample(kLogits, {.temperature = 1, .seed = seed}, i);
  };
  for (uint64_t i = 0; i < 1000; ++i) {
    EXPECT_EQ(token(1, i), token(1, i));
    same += token(1, i) == token(2, i) ? 1 : 0;
  }
  EXPECT_LT(same, 900);
}

TEST(Sampling, LogprobsAreNormalised) {
  const PositionLogprobs logprobs = position_logprobs(kLogits, 2, 5, 3);
  const double log_sum = std::log(std::exp(1.0) + std::exp(2.0) + std::exp(3.0) + std::exp(-50.0));
  EXPECT_EQ(logprobs.chosen.token, 2);
  EXPECT_NEAR(logprobs.chosen.logprob, 2 - log_sum, 1e-6);
  ASSERT_EQ(logprobs.top.size(), 3U);  // the fourth id is padding
  EXPECT_EQ(logprobs.top[0].token, 1);
  EXPECT_EQ(logprobs.top[1].token, 2);
  EXPECT_EQ(logprobs.top[1].logprob, logprobs.chosen.logprob);
  EXPECT_EQ(logprobs.top[2].token, 0);
}

}  // namespace
}  // namespace muster::trainer
