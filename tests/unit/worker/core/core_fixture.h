// A fixture with a core, a clock that the test advances, and helpers that create events.
#pragma once

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "worker/core/core.h"

namespace muster::worker {

using std::chrono::milliseconds;
using std::chrono::seconds;

inline RankKey key(uint64_t job, uint32_t attempt, int32_t rank) {
  return {JobId(job), Attempt(attempt), Rank(rank)};
}

inline StartRanks start(uint64_t job, uint32_t attempt, int32_t ranks, uint64_t epoch = 1) {
  StartRanks event;
  event.epoch = Epoch(epoch);
  event.launch.job = JobId(job);
  event.launch.attempt = Attempt(attempt);
  event.launch.spec.ranks_per_node = ranks;
  for (int32_t r = 0; r < ranks; ++r) event.launch.ranks.push_back({Rank(r), r});
  return event;
}

inline StopRanks stop(uint64_t job, uint32_t attempt, Duration grace, uint64_t epoch = 1,
                      const std::vector<Rank>& awaited = {}) {
  return {Epoch(epoch), JobId(job), Attempt(attempt), grace, "because", awaited};
}

template <class T>
std::vector<T> actions_of(const ActionList& actions) {
  std::vector<T> result;
  for (const Action& action : actions) {
    if (const T* match = std::get_if<T>(&action)) result.push_back(*match);
  }
  return result;
}

class CoreTest : public ::testing::Test {
 protected:
  static CoreOptions options() {
    CoreOptions result;
    result.name = WorkerName("node0");
    result.incarnation = Incarnation(77);
    result.version = "1";
    result.slots = 4;
    result.rendezvous_address = "127.0.0.1:9";
    return result;
  }

  ActionList step(const Event& event) {
    ActionList actions;
    core.step(event, now, actions);
    return actions;
  }

  // Advances the clock and sends the core a Tick.
  ActionList advance(Duration duration) {
    now += duration;
    return step(Tick{});
  }

  // Connects and registers a stream.
  ActionList connect(uint64_t epoch = 1, uint64_t store = 1) {
    while (actions_of<Connect>(step(Tick{})).empty()) now += milliseconds(10);
    ActionList actions = step(Connected{});
    for (const Action& action : step(Registered{Epoch(epoch), seconds(1), StoreId(store)}))
      actions.push_back(action);
    return actions;
  }

  // Starts a launch and reports every rank as up, with pid 100 + rank.
  ActionList start_up(const StartRanks& event) {
    ActionList actions;
    for (const SpawnRank& spawn : actions_of<SpawnRank>(step(event))) {
      for (const Action& a : step(RankStarted{spawn.key, 100 + spawn.key.rank.value()}))
        actions.push_back(a);
    }
    return actions;
  }

  Instant now = instant_from_ns(1'000'000'000'000);
  Core core{options(), now};
};

}  // namespace muster::worker
