// Sums of doubles through collectives of fp32.
#include "trainer_core/comm/exact_floats.h"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

namespace muster::trainer {
namespace {

// Returns the sum of the encodings, with additions in fp32, in this order.
template <class Split, class Join>
double sum_through(const std::vector<double>& values, const Split& split, const Join& join) {
  auto total = split(0.0);
  for (const double value : values) {
    const auto parts = split(value);
    for (size_t i = 0; i < parts.size(); ++i) total[i] += parts[i];
  }
  return join(total);
}

// Log-probabilities of long answers, each with a part on every rank.
TEST(ExactFloats, SumsOfUnitsLoseNoBits) {
  std::vector<double> values;
  double exact = 0;
  for (int rank = 0; rank < 64; ++rank) {
    values.push_back(-1234.56789 * (rank + 1) / 3);
    exact += values.back();
  }
  const std::vector<double> backward(values.rbegin(), values.rend());
  for (const auto& order : {values, backward})
    EXPECT_NEAR(sum_through(order, split_units, join_units), exact, 1e-8);
  // Two parts lose bits, because the sums of the coarse ones are rounded.
  EXPECT_GT(std::abs(sum_through(values, split_double, join_double) - exact), 1e-4);
}

}  // namespace
}  // namespace muster::trainer
