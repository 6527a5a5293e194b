#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "tests/unit/trainer_core/ops/ops_fixture.h"

namespace muster::trainer {
namespace {

// The mask of `sequences` sequences of `each` elements: 0 where it drops, else the factor.
Values mask_of(DropoutMask mask, int64_t each, int threads = 1) {
  Values x({mask.sequences, each}, 1);
  cpu_ops(threads)->dropout(mask, x);
  return x;
}

double dropped_share(const Values& mask) {
  return static_cast<double>(std::ranges::count(mask.data(), 0.0F)) /
         static_cast<double>(mask.size());
}

TEST(Dropout, DropsAtItsRateAndKeepsTheMean) {
  constexpr int64_t kEach = 250'000;
  for (const double rate : {0.0, 0.001, 0.1, 0.5, 0.9}) {
    const Values mask = mask_of({.rate = rate, .key = 3, .sequences = 4}, kEach);
    const auto n = static_cast<double>(mask.size());
    // Five standard deviations of a binomial share.
    EXPECT_NEAR(dropped_share(mask), rate, 5 * std::sqrt(rate * (1 - rate) / n)) << rate;
    const auto factor = static_cast<float>(1 / (1 - rate));
    for (const float value : mask.data()) ASSERT_TRUE(value == 0 || value == factor);
  }
}

TEST(Dropout, ElementsAreIndependent) {
  constexpr double kRate = 0.3;
  const Values mask = mask_of({.rate = kRate, .key = 3}, 1'000'000);
  // Of elements that lie so far apart: neighbours, Philox's blocks of four, chunks of words, rows.
  for (const int64_t distance : {1, 2, 3, 4, 255, 256, 1000}) {
    int64_t both = 0;
    const int64_t n = mask.size() - distance;
    for (int64_t i = 0; i < n; ++i) both += mask[i] == 0 && mask[i + distance] == 0 ? 1 : 0;
    EXPECT_NEAR(static_cast<double>(both) / static_cast<double>(n), kRate * kRate, 2.5e-3)
        << distance;
  }
}

TEST(Dropout, EachSourceHasAMaskOfItsOwn) {
  constexpr double kRate = 0.5;
  const DropoutMask first{.rate = kRate, .key = 3, .first_sample = 5, .place = 2};
  DropoutMask key = first, sample = first, place = first;
  ++key.key;
  ++sample.first_sample;
  ++place.place;
  const Values mask = mask_of(first, 100'000);
  EXPECT_EQ(mask_of(first, 100'000), mask);
  for (const DropoutMask& other : {key, sample, place}) {
    const Values theirs = mask_of(other, 100'000);
    int64_t equal = 0;
    for (int64_t i = 0; i < mask.size(); ++i) equal += mask[i] == theirs[i] ? 1 : 0;
    EXPECT_NEAR(static_cast<double>(equal) / 1e5, 0.5, 0.01);
  }
}

// As the op table says it, with Philox itself: word i of the sample's stream, from the place's position on.
TEST(Dropout, ComparesPhiloxsWords) {
  const DropoutMask mask{
      .rate = 0.25, .key = 0xABCDEF0123456789, .first_sample = uint64_t{5} << 33, .place = 77};
  const Values factors = mask_of(mask, 5'003);
  const Philox philox{.key = mask.key, .stream = mask.first_sample};
  for (int64_t i = 0; i < factors.size(); ++i) {
    const auto at = static_cast<uint64_t>(i);
    const uint32_t word = philox((uint64_t{mask.place} << 46) + at / 4)[at % 4];
    ASSERT_EQ(factors[i] == 0, word < uint32_t{1} << 30) << i;
  }
}

// A sequence of odd length begins and ends within a block of words.
TEST(Dropout, DoesNotDependOnThreadsOrOnTheBatch) {
  constexpr int64_t kEach = 30'011, kSequences = 3;
  const DropoutMask all{.rate = 0.4, .key = 9, .first_sample = 7, .sequences = kSequences};
  const Values whole = mask_of(all, kEach);
  EXPECT_EQ(mask_of(all, kEach, 3), whole);
  for (int64_t sequence = 0; sequence < kSequences; ++sequence) {
    DropoutMask one = all;
    one.sequences = 1;
    one.first_sample += static_cast<uint64_t>(sequence);
    const Values part = mask_of(one, kEach);
    for (int64_t i = 0; i < kEach; ++i) ASSERT_EQ(part[i], whole[sequence * kEach + i]) << i;
  }
}

// What is dropped is gone, also where it was not finite.
TEST(Dropout, DropsWhatIsNotANumber) {
  const DropoutMask mask{.rate = 0.5, .key = 1};
  const Values factors = mask_of(mask, 64);
  Values x({1, 64}, NAN);
  cpu_ops(1)->dropout(mask, x);
  for (int64_t i = 0; i < x.size(); ++i) EXPECT_EQ(std::isnan(x[i]), factors[i] != 0);
}

TEST(DropoutDeathTest, ElementsThatAreNoSequences) {
  Values x({5}, 1);
  EXPECT_DEATH(cpu_ops(1)->dropout({.rate = 0.5, .sequences = 2}, x), "2 sequences");
}

}  // namespace
}  // namespace muster::trainer
