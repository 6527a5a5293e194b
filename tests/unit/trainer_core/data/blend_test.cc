#include "trainer_core/data/blend.h"

#include <cmath>
#include <numeric>
#include <random>

#include <gtest/gtest.h>

namespace muster::trainer {
namespace {

// Every prefix has w n samples of each source to within less than one, and each source's samples
// are in order.
void expect_follows(const std::vector<double>& weights, uint64_t samples, double tolerance = 1) {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  const Blend blend(weights);
  std::vector<uint64_t> given(weights.size());
  for (uint64_t n = 0; n < samples; ++n) {
    const Blend::Pick pick = blend(n);
    ASSERT_LT(pick.source, weights.size());
    ASSERT_EQ(pick.number, given[pick.source]++) << "sample " << n;
    for (size_t k = 0; k < weights.size(); ++k) {
      const double due = weights[k] / sum * static_cast<double>(n + 1);
      ASSERT_LT(std::abs(static_cast<double>(given[k]) - due), tolerance)
          << "source " << k << " after " << n + 1 << " samples";
    }
  }
}

TEST(Blend, EveryPrefixFollowsTheWeights) {
  expect_follows({1}, 100);
  expect_follows({0.7, 0.3}, 1000);
  expect_follows({3, 3, 3}, 1000);
  expect_follows({0.9, 0.02, 0.02, 0.02, 0.02, 0.02}, 5000);
  expect_follows({1, 1, 2, 3, 5, 8, 13, 21, 34}, 5000);
  std::mt19937 random(1);
  for (int round = 0; round < 20; ++round) {
    std::vector<double> weights(2 + random() % 12);
    for (double& weight : weights) weight = (1 + random() % 1000) / 1000.0;
    expect_follows(weights, 3000);
  }
}

TEST(Blend, WeightsWithoutASmallRatioAreRoundedToAMillionth) {
  // The rounding adds 1e-6 of a sample each time: far below one after so many.
  expect_follows({std::sqrt(2), 1, M_PI}, 20'000, 1.02);
  const Blend blend(std::vector<double>{1e-6, 1});
  int rare = 0;
  for (uint64_t n = 0; n < 2'000'000; ++n) rare += blend(n).source == 0 ? 1 : 0;
  EXPECT_NEAR(rare, 2, 1);
}

TEST(Blend, AnySampleIsFoundDirectly) {
  const Blend blend(std::vector<double>{0.25, 0.75});
  const uint64_t far = uint64_t{4} << 50;
  EXPECT_EQ(blend(far).source, blend(0).source);
  EXPECT_EQ(blend(far).number, blend(0).number + far / 4 * (blend(0).source == 0 ? 1 : 3));
}

}  // namespace
}  // namespace muster::trainer
