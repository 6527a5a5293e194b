#include "trainer_core/rank/step_tail.h"

#include <array>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

namespace muster::trainer {
namespace {

TEST(StepTail, SumsOverRanksAreExact) {
  std::array<float, kStepTailElements> sum{};
  double loss = 0, squares = 0;
  constexpr int kRanks = 64;
  for (int rank = 0; rank < kRanks; ++rank) {
    std::array<float, kStepTailElements> tail{};
    const double mine = 123456.789012345 + rank / 7.0;
    loss += mine;
    const double my_squares = std::pow(7.3, rank);  // up to 10^54, beyond fp32
    squares += my_squares;
    StepTail{.loss = mine,
             .weight = 1'048'577,
             .stop_votes = rank == 5 ? 1 : 0,
             .checkpoint_votes = rank < 3 ? 1 : 0,
             .balance = 0.125,
             .routed = 33'554'433,
             .dropped = rank,
             .squares = my_squares}
        .write(tail);
    for (size_t i = 0; i < tail.size(); ++i) sum[i] += tail[i];
  }
  const StepTail total = StepTail::read(sum);
  EXPECT_NEAR(total.loss / loss, 1, 1e-7);
  EXPECT_EQ(total.weight, 1'048'577.0 * kRanks);  // more than one fp32 counts exactly
  EXPECT_EQ(total.stop_votes, 1);
  EXPECT_EQ(total.checkpoint_votes, 3);
  EXPECT_EQ(total.bad_ranks, 0);
  EXPECT_EQ(total.balance, 0.125 * kRanks);
  EXPECT_EQ(total.routed, int64_t{33'554'433} * kRanks);
  EXPECT_EQ(total.dropped, kRanks * (kRanks - 1) / 2);
  EXPECT_NEAR(total.squares / squares, 1, 1e-7);
}

TEST(StepTail, SquaresBeyondFp32AreReduced) {
  for (const double squares : {0.0, 1e-30, 3.7, 7.9e28, 8e28, 1e77, 1e90}) {
    std::array<float, kStepTailElements> tail{};
    StepTail{.squares = squares}.write(tail);
    EXPECT_NEAR(StepTail::read(tail).squares, squares, 1e-12 * squares);
  }
  for (const double squares : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    std::array<float, kStepTailElements> tail{};
    StepTail{.squares = squares}.write(tail);
    EXPECT_FALSE(std::isfinite(StepTail::read(tail).squares));
  }
}

TEST(StepTail, AnInfiniteLossStaysInfinite) {
  std::array<float, kStepTailElements> tail{};
  StepTail{.loss = std::numeric_limits<double>::infinity(),
           .weight = 1,
           .bad_ranks = 1,
           .bad_rank_sum = 3}
      .write(tail);
  const StepTail total = StepTail::read(tail);
  EXPECT_FALSE(std::isfinite(total.loss));
  EXPECT_EQ(total.bad_rank_sum, 3);
}

TEST(ExactFloats, RoundTripEveryBit) {
  for (const uint64_t value :
       {uint64_t{0}, uint64_t{1}, uint64_t{0xFEDCBA9876543210}, ~uint64_t{0}}) {
    EXPECT_EQ(u64_of_floats(floats_of_u64(value)), value);
  }
}

}  // namespace
}  // namespace muster::trainer
