#include <gmock/gmock.h>

#include <cstdlib>
#include <iostream>
#include <optional>
#include <set>
#include <sstream>
#include <string>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

#include "tests/simulation/minimise.h"
#include "tests/simulation/world.h"
#include "tests/unit/sanitized.h"

namespace muster::simulation {
namespace {

using testing::HasSubstr;

// The address sanitizer makes a seed ten times as slow, and its findings do not depend on many
// seeds.
constexpr uint64_t kStories = kSanitized ? 50 : 1600;
constexpr uint64_t kFleets = kSanitized ? 2 : 200;
constexpr uint64_t kOutages = kSanitized ? 12 : 200;
constexpr uint64_t kSeedsPerTest = kSanitized ? 50 : 100;
// Fleets of kFleetWorkers workers.
constexpr uint64_t kFleetsPerTest = kSanitized ? 2 : 10;
constexpr int kFleetWorkers = 64;

// Returns the number of workers of each seed; 0: the seed draws 2 to 5.
int workers_from_environment() {
  const char* text = std::getenv("MUSTER_SIMULATION_WORKERS");
  return text == nullptr ? 0 : std::atoi(text);
}

// Returns the faults of each seed: all, or with MUSTER_SIMULATION_FAULTS=outages only outages of
// the coordinator's network.
Faults faults_from_environment() {
  const char* text = std::getenv("MUSTER_SIMULATION_FAULTS");
  return text != nullptr && std::string(text) == "outages" ? Faults::kOutages : Faults::kAll;
}

// Returns the submissions and faults of MUSTER_SIMULATION_KEPT=2,5,9, of which there may be none;
// nullopt: all happen.
std::optional<std::set<int>> kept_from_environment() {
  const char* text = std::getenv("MUSTER_SIMULATION_KEPT");
  if (text == nullptr) return std::nullopt;
  std::set<int> kept;
  for (std::istringstream numbers(text); numbers;) {
    std::string number;
    if (std::getline(numbers, number, ',')) kept.insert(std::atoi(number.c_str()));
  }
  return kept;
}

class Seeds : public testing::TestWithParam<uint64_t> {};

TEST_P(Seeds, HoldTheirInvariantsAndEveryJobEnds) {
  World::Totals sum;
  for (uint64_t seed = GetParam(); seed < GetParam() + kSeedsPerTest; ++seed) {
    World world(seed);
    const bool has_failed = !world.run().empty();
    ASSERT_FALSE(has_failed) << failure_of_seed(seed, 0);
    const World::Totals& t = world.totals();
    sum.jobs += t.jobs;
    sum.succeeded += t.succeeded;
    sum.failed += t.failed;
    sum.cancelled += t.cancelled;
    sum.attempts += t.attempts;
    sum.crashes += t.crashes;
    sum.saved_on_request += t.saved_on_request;
    sum.hangs += t.hangs;
    sum.hangs_named += t.hangs_named;
    sum.slow_ranks += t.slow_ranks;
    sum.incidents += t.incidents;
    sum.left_together += t.left_together;
    sum.cut_launches += t.cut_launches;
    sum.stuck += t.stuck;
    sum.left_stuck += t.left_stuck;
    sum.sweeps += t.sweeps;
    sum.exclusions += t.exclusions;
    sum.last_resorts += t.last_resorts;
    sum.unread += t.unread;
    sum.stale_events += t.stale_events;
    sum.smaller += t.smaller;
    sum.grown += t.grown;
    sum.with_spares += t.with_spares;
    sum.updates += t.updates;
    sum.rollbacks += t.rollbacks;
    sum.planned += t.planned;
    sum.saved_as_planned += t.saved_as_planned;
  }
  std::cout << sum.jobs << " jobs in " << sum.attempts << " attempts: " << sum.succeeded
            << " succeeded, " << sum.failed << " failed, " << sum.cancelled << " cancelled; "
            << sum.crashes << " daemons crashed; " << sum.saved_on_request
            << " checkpoints on request; " << sum.left_together << " attempts left together; "
            << sum.hangs << " hangs, of them " << sum.hangs_named << " judged; " << sum.incidents
            << " incidents, " << sum.slow_ranks << " slow ranks; " << sum.exclusions
            << " nodes left out, " << sum.last_resorts << " attempts on one all the same; "
            << sum.smaller << " attempts on fewer nodes, " << sum.grown << " grew; "
            << sum.with_spares << " spares took a place; " << sum.stuck
            << " processes could not be killed, " << sum.left_stuck
            << " attempts continued without; " << sum.unread
            << " leases continued with unread messages; " << sum.stale_events << " stale events; "
            << sum.cut_launches << " attempts met a cut link; " << sum.updates << " updates, "
            << sum.rollbacks << " rolled back; " << sum.planned << " attempts ended as planned, "
            << sum.saved_as_planned << " of them saved by all ranks together\n";
  // A simulation in which nothing happens proves nothing.
  EXPECT_GT(sum.succeeded, sum.jobs / 10);
  EXPECT_GT(sum.attempts, sum.jobs);
  EXPECT_GT(sum.saved_on_request, sum.jobs / 20);
  EXPECT_GT(sum.hangs, sum.jobs / 20);
  EXPECT_GT(sum.hangs_named, 0);
  EXPECT_GT(sum.left_together, sum.jobs / 10);
  EXPECT_GT(sum.sweeps, sum.jobs / 10);
  EXPECT_GT(sum.exclusions, sum.jobs / 10);
  EXPECT_GT(sum.last_resorts, 0);
  EXPECT_GT(sum.smaller, sum.jobs / 20);
  // A lost node is excluded for long, so one in 25 of these attempts grows.
  if (sum.smaller > 120) {
    EXPECT_GT(sum.grown, 0);
  }
  EXPECT_GT(sum.with_spares, 0);
  // An attempt continues without one in four of them.
  if (sum.stuck > 20) {
    EXPECT_GT(sum.left_stuck, 0);
  }
  EXPECT_GT(sum.stale_events, 0);
  EXPECT_GT(sum.cut_launches, 0);
  EXPECT_GT(sum.updates, sum.jobs / 20);
  EXPECT_GT(sum.rollbacks, 0);
  EXPECT_GT(sum.saved_as_planned, sum.planned / 10);
}

INSTANTIATE_TEST_SUITE_P(Simulation, Seeds,
                         testing::Range<uint64_t>(1, kStories + 1, kSeedsPerTest));

class Fleets : public testing::TestWithParam<uint64_t> {};

// More jobs run side by side than in the seeds above, nodes are free for restarts, and placement
// chooses between many nodes.
TEST_P(Fleets, HoldTheirInvariantsAndEveryJobEnds) {
  int jobs = 0;
  int attempts = 0;
  for (uint64_t seed = GetParam(); seed < GetParam() + kFleetsPerTest; ++seed) {
    World world(seed, kFleetWorkers);
    const bool has_failed = !world.run().empty();
    ASSERT_FALSE(has_failed) << failure_of_seed(seed, kFleetWorkers);
    jobs += world.totals().jobs;
    attempts += world.totals().attempts;
  }
  // A coordinator that lost its disk after the last submission has no jobs to count.
  if (jobs > 10) {
    EXPECT_GT(attempts, jobs);
  }
}

INSTANTIATE_TEST_SUITE_P(Simulation, Fleets,
                         testing::Range<uint64_t>(1, kFleets + 1, kFleetsPerTest));

// Ranks run without the coordinator, so an outage of its network ends no attempt. The parameter is
// the number of workers; 0: the seed draws 2 to 5.
class Outages : public testing::TestWithParam<int> {};

TEST_P(Outages, EndNoAttempt) {
  World::Totals sum;
  for (uint64_t seed = 1; seed <= kOutages; ++seed) {
    World world(seed, GetParam(), nullptr, false, Faults::kOutages);
    const bool has_failed = !world.run().empty();
    ASSERT_FALSE(has_failed) << failure_of_seed(seed, GetParam(), Faults::kOutages);
    sum.jobs += world.totals().jobs;
    sum.outages += world.totals().outages;
    sum.unanswered += world.totals().unanswered;
  }
  std::cout << sum.jobs << " jobs, " << sum.outages << " outages, " << sum.unanswered
            << " streams replaced\n";
  EXPECT_GT(sum.outages, sum.jobs / 3);
  EXPECT_GT(sum.unanswered, sum.outages / 2);
}

INSTANTIATE_TEST_SUITE_P(Simulation, Outages, testing::Values(0, 1, 3, 12));

// Runs one seed for debugging: MUSTER_SIMULATION_SEED, and MUSTER_SIMULATION_KEPT with the
// submissions and faults that happen.
TEST(Simulation, OneSeed) {
  const char* text = std::getenv("MUSTER_SIMULATION_SEED");
  const uint64_t seed = text == nullptr ? 0 : std::strtoull(text, nullptr, 10);
  const std::optional<std::set<int>> kept = kept_from_environment();
  World world(seed, workers_from_environment(), kept ? &*kept : nullptr, true,
              faults_from_environment());
  const std::string problem = world.run();
  EXPECT_TRUE(problem.empty()) << problem;
}

// Runs a range of seeds, at most so many workers each: MUSTER_SIMULATION_SEEDS=FIRST-LAST and
// MUSTER_SIMULATION_WORKERS.
TEST(Simulation, Range) {
  const char* text = std::getenv("MUSTER_SIMULATION_SEEDS");
  if (text == nullptr) GTEST_SKIP() << "set MUSTER_SIMULATION_SEEDS=FIRST-LAST";
  char* rest = nullptr;
  const uint64_t first = std::strtoull(text, &rest, 10);
  const uint64_t last = *rest == '-' ? std::strtoull(rest + 1, nullptr, 10) : first;
  for (uint64_t seed = first; seed <= last; ++seed) {
    const std::string problem =
        failure_of_seed(seed, workers_from_environment(), faults_from_environment());
    ASSERT_TRUE(problem.empty()) << problem;
  }
}

// A worker's lease seldom ends while a message of it is unread, so this takes several seeds.
TEST(Simulation, ReportsUnreadMessagesOfSilentWorkers) {
  constexpr uint64_t kSeedsMax = 400;
  int64_t unread = 0;
  for (uint64_t seed = 1; seed <= kSeedsMax && unread == 0; ++seed) {
    World world(seed);
    const std::string problem = world.run();
    ASSERT_TRUE(problem.empty()) << problem;
    unread += world.totals().unread;
  }
  EXPECT_GT(unread, 0);
}

// A minimised failure is replayed with the submissions and faults that it retains, even if it
// retains none.
TEST(Simulation, PrintsTheCommandThatReplaysAFailure) {
  const auto command_of = [](const std::set<int>* kept) {
    World world(7, 3, kept);
    world.fail("a violation");
    return world.run();
  };
  constexpr auto kPrefix = "MUSTER_SIMULATION_SEED=7 MUSTER_SIMULATION_WORKERS=3 ";
  const std::set<int> some = {4, 1, 12};
  const std::set<int> none;
  EXPECT_THAT(command_of(nullptr), HasSubstr(absl::StrCat(kPrefix, "muster_simulation")));
  EXPECT_THAT(command_of(&some),
              HasSubstr(absl::StrCat(kPrefix, "MUSTER_SIMULATION_KEPT=1,4,12 ")));
  EXPECT_THAT(command_of(&none), HasSubstr(absl::StrCat(kPrefix, "MUSTER_SIMULATION_KEPT= ")));
}

// The same seed produces the same events.
TEST(Simulation, IsDeterministic) {
  World first(77);
  World second(77);
  EXPECT_EQ(first.run(), second.run());
  EXPECT_EQ(first.random.below(1'000'000'000), second.random.below(1'000'000'000));
  EXPECT_EQ(first.coordinator.disk(), second.coordinator.disk());
}

}  // namespace
}  // namespace muster::simulation
