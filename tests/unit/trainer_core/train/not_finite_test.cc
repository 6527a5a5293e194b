#include "trainer_core/not_finite.h"

#include <gmock/gmock.h>

#include <limits>
#include <thread>

#include <gtest/gtest.h>

#include "trainer_core/comm/local.h"

namespace muster::trainer {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// What each of norms.size() ranks says when these are the ranks' own gradient norms.
std::vector<std::string> names(const StepTail& reduced, const std::vector<double>& norms) {
  const int size = static_cast<int>(norms.size());
  LocalWorld world(size, std::chrono::milliseconds(60'000));
  std::vector<std::string> result(norms.size());
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank, r = static_cast<size_t>(rank)] {
      auto page = ProgressWriter::anonymous({.rank = rank, .world_size = size});
      auto group = world.join(rank, page.get(), "data");
      result[r] = name_not_finite(*group, reduced, [&] { return norms[r]; });
    });
  }
  for (std::thread& thread : threads) thread.join();
  return result;
}

using testing::Each;

TEST(NotFinite, ALossIsNamedWithoutComputingAnythingAgain) {
  const auto fail = [] { return ADD_FAILURE() << "computed again", 0.0; };
  LocalWorld world(1, std::chrono::milliseconds(60'000));
  auto page = ProgressWriter::anonymous({.rank = 0, .world_size = 1});
  auto group = world.join(0, page.get(), "data");
  EXPECT_EQ(name_not_finite(*group, {.bad_ranks = 1, .bad_rank_sum = 3}, fail),
            "the loss of rank 3");
  EXPECT_EQ(name_not_finite(*group, {.bad_ranks = 1, .bad_rank_sum = 0}, fail),
            "the loss of rank 0");
}

TEST(NotFinite, AGradientOfOneRankIsNamedOnAllRanks) {
  EXPECT_THAT(names({}, {1.0, 2.0, kNan, 1.0}), Each("the gradient of rank 2"));
  EXPECT_THAT(names({}, {kInfinity, 2.0}), Each("the gradient of rank 0"));
  EXPECT_THAT(names({}, {kInfinity, 2.0, kNan}), Each("the gradient of 2 of 3 ranks"));
}

TEST(NotFinite, GradientsThatOverflowOnlyTogether) {
  EXPECT_THAT(names({}, {1e30, 1e30}), Each("the sum of all ranks' gradients"));
}

}  // namespace
}  // namespace muster::trainer
