// How often a worker reports, and when it reconnects.
#include <deque>
#include <map>
#include <set>

#include "tests/unit/worker/core/core_fixture.h"

namespace muster::worker {
namespace {

// Counts the heartbeats that the worker sends in `time`.
class PaceTest : public CoreTest {
 protected:
  size_t heartbeats_in(Duration time) {
    size_t count = 0;
    for (const Instant end = now + time; now < end; now += milliseconds(10)) {
      for (const Action& action : step(Tick{})) {
        count += std::holds_alternative<SendHeartbeat>(action) ? 1 : 0;
        if (std::holds_alternative<ReadPages>(action))
          count += actions_of<SendHeartbeat>(step(PageResults{})).size();
      }
    }
    return count;
  }
};

TEST_F(PaceTest, FollowsTheCoordinator) {
  connect();
  start_up(start(1, 1, 2));
  EXPECT_NEAR(static_cast<double>(heartbeats_in(seconds(40))), 160, 2);
  step(PaceChanged{Epoch(1), seconds(2), seconds(2), seconds(1)});
  EXPECT_NEAR(static_cast<double>(heartbeats_in(seconds(40))), 20, 1);
  step(PaceChanged{Epoch(1), seconds(1), milliseconds(500), seconds(1)});
  EXPECT_NEAR(static_cast<double>(heartbeats_in(seconds(40))), 80, 1);
}

// Heartbeats that are spread over an interval stay spread when the interval grows.
TEST_F(PaceTest, SpreadsTheFirstLongerInterval) {
  std::set<int64_t> waits;
  for (uint64_t incarnation = 1; incarnation <= 20; ++incarnation) {
    CoreOptions own = options();
    own.incarnation = Incarnation(incarnation);
    Core worker(own, now);
    ActionList actions;
    worker.step(Tick{}, now, actions);
    worker.step(Connected{}, now, actions);
    worker.step(Registered{Epoch(1), seconds(1)}, now, actions);
    worker.step(Tick{}, now, actions);
    worker.step(PaceChanged{Epoch(1), seconds(8), seconds(8), seconds(1)}, now, actions);
    const Duration wait = *worker.next_deadline() - now;
    EXPECT_LE(wait, seconds(8));
    EXPECT_GE(wait, seconds(1));
    waits.insert(wait / milliseconds(100));
  }
  EXPECT_GE(waits.size(), 10U);
}

// After the loss of the coordinator the fleet returns over the spread, not at once. Workers whose
// ranks, or reports of ends, the coordinator awaits return before those without.
TEST_F(PaceTest, SpreadsReconnectionsAndAwaitedWorkersAreFirst) {
  constexpr Duration kSpread = seconds(5), kBackoff = milliseconds(50);
  enum class Has { kNothing, kRank, kReport };
  for (const Has has : {Has::kNothing, Has::kRank, Has::kReport}) {
    std::set<int64_t> waits;
    for (uint64_t incarnation = 1; incarnation <= 20; ++incarnation) {
      CoreOptions own = options();
      own.incarnation = Incarnation(incarnation);
      Core worker(own, now);
      ActionList actions;
      worker.step(Tick{}, now, actions);
      worker.step(Connected{}, now, actions);
      worker.step(Registered{Epoch(1), seconds(1), {}, {}, seconds(1), kSpread}, now, actions);
      if (has != Has::kNothing) {
        worker.step(start(1, 1, 1), now, actions);
        worker.step(RankStarted{key(1, 1, 0), 100}, now, actions);
      }
      if (has == Has::kReport) worker.step(RankReaped{key(1, 1, 0), 1, 0, 9, ""}, now, actions);
      ASSERT_EQ(worker.ranks().empty(), has != Has::kRank);
      worker.step(Disconnected{StreamEnd::kBroken, "reset"}, now, actions);
      const Duration wait = *worker.next_deadline() - now;
      EXPECT_GE(wait, has == Has::kNothing ? kSpread : Duration::zero());
      EXPECT_LE(wait, (has == Has::kNothing ? kSpread * 3 / 2 : kSpread) + kBackoff);
      waits.insert(wait / milliseconds(100));
    }
    EXPECT_GE(waits.size(), 10U) << static_cast<int>(has);
  }
}

// During an upgrade the new coordinator refuses all workers of the earlier version that have no
// ranks, until they are replaced. They must leave it time for the others.
TEST_F(PaceTest, AFleetOfAnotherVersionDoesNotFloodTheCoordinator) {
  constexpr int kWorkers = 12'500;
  constexpr Duration kSpread = seconds(5);
  constexpr int kMinutes = 5;
  ActionList actions;
  std::deque<Core> fleet;
  for (int i = 0; i < kWorkers; ++i) {
    CoreOptions own = options();
    own.incarnation = Incarnation(static_cast<uint64_t>(i) + 1);
    Core& worker = fleet.emplace_back(own, now);
    worker.step(Tick{}, now, actions);
    worker.step(Connected{}, now, actions);
    worker.step(Registered{Epoch(1), seconds(1), {}, {}, seconds(1), kSpread}, now, actions);
    worker.step(Disconnected{StreamEnd::kBroken, "reset"}, now, actions);
  }
  std::map<int64_t, int> requests;  // by second
  for (Core& worker : fleet) {
    for (Instant at = *worker.next_deadline(); at < now + kMinutes * seconds(60);
         at = *worker.next_deadline()) {
      ++requests[(at - now) / seconds(1)];
      actions.clear();
      worker.step(Tick{}, at, actions);
      worker.step(Connected{}, at, actions);
      worker.step(Disconnected{StreamEnd::kRefused, "another version"}, at, actions);
    }
  }
  int most = 0;
  int sum = 0;
  for (const auto& [second, count] : requests) {
    if (second < 120) continue;  // the delays still grow
    most = std::max(most, count);
    sum += count;
  }
  EXPECT_LT(most, 1'000);
  EXPECT_GT(sum / (60 * kMinutes - 120), 300) << "they still return soon to the earlier version";
}

}  // namespace
}  // namespace muster::worker
