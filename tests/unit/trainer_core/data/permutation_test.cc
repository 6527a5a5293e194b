#include "trainer_core/data/permutation.h"

#include <cmath>
#include <map>
#include <set>
#include <vector>

#include <gtest/gtest.h>

namespace muster::trainer {
namespace {

TEST(Permutation, IsABijection) {
  for (uint64_t n = 1; n <= 2000; ++n) {
    const Permutation permutation(n, 3, n % 7);
    std::vector<bool> seen(n);
    for (uint64_t i = 0; i < n; ++i) {
      const uint64_t image = permutation(i);
      ASSERT_LT(image, n);
      ASSERT_FALSE(seen[image]) << "of " << n << ": " << image << " twice";
      seen[image] = true;
    }
  }
}

TEST(Permutation, IsOneToOneForLargeDomains) {
  for (const uint64_t n : {uint64_t{1} << 20, (uint64_t{1} << 33) + 1, uint64_t{10'000'000'000'000},
                           (uint64_t{1} << 62) + 12345}) {
    const Permutation permutation(n, 11, 2);
    std::set<uint64_t> images;
    constexpr uint64_t kLooks = 2000;
    for (uint64_t i = 0; i < kLooks; ++i) {
      for (const uint64_t at : {i, n / 2 + i, n - 1 - i}) {
        const uint64_t image = permutation(at);
        ASSERT_LT(image, n);
        images.insert(image);
      }
    }
    EXPECT_EQ(images.size(), 3 * kLooks);
  }
}

// Pearson's statistic in standard deviations of its distribution: about ±5 if all cells are equally
// likely.
double surprise(const std::vector<int>& cells) {
  double total = 0, statistic = 0;
  for (const int count : cells) total += count;
  const double expected = total / static_cast<double>(cells.size());
  for (const int count : cells) statistic += (count - expected) * (count - expected) / expected;
  const double freedom = static_cast<double>(cells.size()) - 1;
  return (statistic - freedom) / std::sqrt(2 * freedom);
}

// Every order of a small domain, over seeds.
TEST(Permutation, AllOrdersAreEquallyLikely) {
  for (const uint64_t n : {3, 4, 5}) {
    std::map<std::vector<uint64_t>, int> seen;
    int orders = 1;
    for (int i = 2; i <= static_cast<int>(n); ++i) orders *= i;
    for (uint64_t seed = 0; seed < 200 * static_cast<uint64_t>(orders); ++seed) {
      const Permutation permutation(n, seed, 0);
      std::vector<uint64_t> order;
      for (uint64_t i = 0; i < n; ++i) order.push_back(permutation(i));
      ++seen[order];
    }
    std::vector<int> cells;
    for (const auto& [order, count] : seen) cells.push_back(count);
    cells.resize(static_cast<size_t>(orders));
    EXPECT_LT(surprise(cells), 5) << "of " << n;
  }
}

// The positions of samples and their neighbours in one order of a large domain.
TEST(Permutation, NeighboursAreSpreadOverTheEpoch) {
  constexpr uint64_t kN = 100'003, kCells = 50;
  const auto cell = [](uint64_t place) { return place * kCells / kN; };
  for (const uint64_t epoch : {0, 1, 2}) {
    const Permutation permutation(kN, 42, epoch), next_epoch(kN, 42, epoch + 1);
    std::vector<int> pairs(kCells * kCells), epochs(kCells * kCells), steps(kCells);
    for (uint64_t i = 0; i + 1 < kN; ++i) {
      const uint64_t here = permutation(i), there = permutation(i + 1);
      ++pairs[cell(here) * kCells + cell(there)];
      ++epochs[cell(here) * kCells + cell(next_epoch(i))];
      ++steps[cell((there + kN - here) % kN)];
    }
    EXPECT_LT(std::abs(surprise(pairs)), 5);
    EXPECT_LT(std::abs(surprise(epochs)), 5);
    EXPECT_LT(std::abs(surprise(steps)), 5);
  }
}

}  // namespace
}  // namespace muster::trainer
