#include "trainer_core/tools/sampling.h"

#include <array>
#include <cmath>
#include <set>

#include <gtest/gtest.h>

namespace muster::trainer {
namespace {

constexpr std::array<float, 4> kLogits = {1.0F, 3.0F, 2.0F, -50.0F};

std::set<int32_t> seen(const SamplingOptions& options) {
  std::set<int32_t> tokens;
  for (uint64_t i = 0; i < 2000; ++i) tokens.insert(sample_token(kLogits, options, i));
  return tokens;
}

TEST(Sampling, GreedyTakesTheLikeliest) { EXPECT_EQ(seen({}), (std::set<int32_t>{1})); }

TEST(Sampling, FrequenciesFollowTheSoftmax) {
  std::array<int, 4> counts{};
  constexpr int kDraws = 20'000;
  for (uint64_t i = 0; i < kDraws; ++i)
    ++counts[static_cast<size_t>(sample_token(kLogits, {.temperature = 1}, i))];
  const double total = std::exp(1.0) + std::exp(2.0) + std::exp(3.0);
  EXPECT_NEAR(counts[1] / double{kDraws}, std::exp(3.0) / total, 0.01);
  EXPECT_NEAR(counts[2] / double{kDraws}, std::exp(2.0) / total, 0.01);
  EXPECT_NEAR(counts[0] / double{kDraws}, std::exp(1.0) / total, 0.01);
}

TEST(Sampling, TopKAndTopPCutTheTail) {
  EXPECT_EQ(seen({.temperature = 1}), (std::set<int32_t>{0, 1, 2}));
  EXPECT_EQ(seen({.temperature = 1, .top_k = 2}), (std::set<int32_t>{1, 2}));
  EXPECT_EQ(seen({.temperature = 1, .top_p = 0.7}), (std::set<int32_t>{1, 2}));
  EXPECT_EQ(seen({.temperature = 1, .top_p = 0}), (std::set<int32_t>{1}));
}

TEST(Sampling, TheSeedDecides) {
  int same = 0;
  for (uint64_t i = 0; i < 1000; ++i) {
    EXPECT_EQ(sample_token(kLogits, {.temperature = 1, .seed = 1}, i),
              sample_token(kLogits, {.temperature = 1, .seed = 1}, i));
    same += sample_token(kLogits, {.temperature = 1, .seed = 1}, i) ==
                    sample_token(kLogits, {.temperature = 1, .seed = 2}, i)
                ? 1
                : 0;
  }
  EXPECT_LT(same, 900);
}

}  // namespace
}  // namespace muster::trainer
