// The fault matrix of large trainings: the named culprit, the latency, and the absence of false
// alarms. bench/hang_simulation runs and prints the complete matrix.
#include <ctime>
#include <iostream>
#include <map>
#include <vector>

#include <gtest/gtest.h>

#include "tests/simulation/fleet.h"

namespace muster::simulation {
namespace {

double cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

class Matrix : public testing::TestWithParam<Trouble> {};

TEST_P(Matrix, IsReportedInTimeAndNamesTheCulprit) {
  const Trouble trouble = GetParam();
  const bool nothing = expected_of(trouble) == Expected::kNothing;
  for (const auto& [ranks, seeds] : std::map<int32_t, uint64_t>{{8, 6}, {64, 4}, {512, 1}}) {
    for (uint64_t seed = 1; seed <= seeds; ++seed) {
      const FleetResult result = Fleet(ranks, trouble, seed).run();
      SCOPED_TRACE(testing::Message() << ranks << " ranks, seed " << seed << ": "
                                      << to_seconds(result.latency) << " s: " << result.sentence);
      EXPECT_EQ(result.false_alarms, 0);
      EXPECT_EQ(result.ended, 0);
      EXPECT_EQ(result.reported, !nothing);
      EXPECT_EQ(result.right, !nothing);
      EXPECT_TRUE(result.moved);
      if (result.bound > Duration::zero()) {
        EXPECT_LE(to_seconds(result.latency), to_seconds(result.bound));
      }
      if (result.stop_bound > Duration::zero()) {
        EXPECT_GT(to_seconds(result.stopped), 0);
        EXPECT_LE(to_seconds(result.stopped), to_seconds(result.stop_bound));
      }
    }
  }
}

std::string name_of_trouble(const testing::TestParamInfo<Trouble>& one) {
  std::string name(kTroubleNames[static_cast<size_t>(one.param)]);
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
}

std::vector<Trouble> all_troubles() {
  std::vector<Trouble> all;
  for (size_t i = 0; i < kTroubleNames.size(); ++i) all.push_back(static_cast<Trouble>(i));
  return all;
}

INSTANTIATE_TEST_SUITE_P(Troubles, Matrix, testing::ValuesIn(all_troubles()), name_of_trouble);

// The bound of the latency is the same as for eight ranks, also on a shared machine.
TEST(Scale, OneHungRankOf16384IsFoundAndNamed) {
  const double before = cpu_seconds();
  const FleetResult result = Fleet(16'384, Trouble::kLock, 3).run();
  std::cout << result.sentence << "\n"
            << to_seconds(result.latency) << " s after it began; " << cpu_seconds() - before
            << " s of processor time\n";
  EXPECT_TRUE(result.right);
  EXPECT_EQ(result.false_alarms, 0);
  EXPECT_LE(to_seconds(result.latency), to_seconds(result.bound));
}

}  // namespace
}  // namespace muster::simulation
