#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "tests/unit/trainer_core/ops/ops_fixture.h"

namespace muster::trainer {
namespace {

// The mask of `samples` samples of `each` elements: 0 where it drops, else the factor.
Values mask_of(DropoutMask mask, int64_t each, int threads = 1, int64_t samples = 1) {
  Values x({samples, each}, 1);
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
    const Values mask = mask_of({.rate = rate, .key = 3}, kEach, 1, 4);
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
  // Pairs of elements at these distances: neighbours, Philox's blocks of four, chunks of words,
  // rows.
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
  const DropoutMask first{.rate = kRate, .key = 3, .location = 2, .elements = {5}};
  DropoutMask key = first, sample = first, location = first;
  ++key.key;
  ++sample.elements.first_sample;
  ++location.location;
  const Values mask = mask_of(first, 100'000);
  EXPECT_EQ(mask_of(first, 100'000), mask);
  for (const DropoutMask& other : {key, sample, location}) {
    const Values theirs = mask_of(other, 100'000);
    int64_t equal = 0;
    for (int64_t i = 0; i < mask.size(); ++i) equal += mask[i] == theirs[i] ? 1 : 0;
    EXPECT_NEAR(static_cast<double>(equal) / 1e5, 0.5, 0.01);
  }
}

// Recomputes the mask with Philox as the op table defines it: word i of the sample's stream, from
// the location's position on.
TEST(Dropout, ComparesPhiloxsWords) {
  const DropoutMask mask{
      .rate = 0.25, .key = 0xABCDEF0123456789, .location = 77, .elements = {uint64_t{5} << 33}};
  const Values factors = mask_of(mask, 5'003);
  const Philox philox{.key = mask.key, .stream = mask.elements.first_sample};
  for (int64_t i = 0; i < factors.size(); ++i) {
    const auto at = static_cast<uint64_t>(i);
    const uint32_t word = philox((uint64_t{mask.location} << 46) + at / 4)[at % 4];
    ASSERT_EQ(factors[i] == 0, word < uint32_t{1} << 30) << i;
  }
}

// A sample of odd length begins and ends within a block of words.
TEST(Dropout, DoesNotDependOnThreadsOrOnTheBatch) {
  constexpr int64_t kEach = 30'011, kSamples = 3;
  const DropoutMask all{.rate = 0.4, .key = 9, .elements = {7}};
  const Values whole = mask_of(all, kEach, 1, kSamples);
  EXPECT_EQ(mask_of(all, kEach, 3, kSamples), whole);
  for (int64_t sample = 0; sample < kSamples; ++sample) {
    DropoutMask one = all;
    one.elements.first_sample += static_cast<uint64_t>(sample);
    const Values part = mask_of(one, kEach);
    for (int64_t i = 0; i < kEach; ++i) ASSERT_EQ(part[i], whole[sample * kEach + i]) << i;
  }
}

// The mask does not depend on the distribution of positions, rows and columns either.
TEST(Dropout, DoesNotDependOnTheMesh) {
  constexpr int64_t kSamples = 3, kLength = 24, kWidth = 37, kColumns = 19;
  const DropoutMask all{.rate = 0.4, .key = 9, .elements = {7, {Positions::first(kLength)}}};
  Values whole({kSamples * kLength, kWidth}, 1);
  cpu_ops(1)->dropout(all, whole);

  // A context rank's chunks, of which the sequence axis takes rows 3 … 9 and tensor parallelism
  // rows 5 … 16 of all sequences.
  const Positions chunks({6, 6}, {18, 6});
  const Positions part = chunks.slice(3, 7);
  EXPECT_EQ(part, Positions({9, 3}, {18, 4}));
  DropoutMask mask = all;
  mask.elements.rows = {part, 5};
  Values rows({12, kWidth}, 1);
  cpu_ops(2)->dropout(mask, rows);
  mask.elements.first_column = kWidth - kColumns;  // as for the MLP's inner activations
  mask.elements.columns = kWidth;
  Values columns({12, kColumns}, 1);
  cpu_ops(2)->dropout(mask, columns);
  for (int64_t row = 0; row < 12; ++row) {
    const int64_t sample = (5 + row) / 7, in_part = (5 + row) % 7;
    const int64_t position = in_part < 3 ? 9 + in_part : 18 + in_part - 3;
    const int64_t from = (sample * kLength + position) * kWidth;
    for (int64_t i = 0; i < kWidth; ++i) {
      ASSERT_EQ(rows[row * kWidth + i], whole[from + i]) << row << ' ' << i;
      if (const int64_t j = i - (kWidth - kColumns); j >= 0) {
        ASSERT_EQ(columns[row * kColumns + j], whole[from + i]) << row << ' ' << i;
      }
    }
  }
}

// Dropped elements become 0 even if they were not finite.
TEST(Dropout, DropsNan) {
  const DropoutMask mask{.rate = 0.5, .key = 1};
  const Values factors = mask_of(mask, 64);
  Values x({1, 64}, NAN);
  cpu_ops(1)->dropout(mask, x);
  for (int64_t i = 0; i < x.size(); ++i) EXPECT_EQ(std::isnan(x[i]), factors[i] != 0);
}

}  // namespace
}  // namespace muster::trainer
