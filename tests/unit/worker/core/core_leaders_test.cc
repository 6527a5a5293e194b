// The core and several coordinators with a common store, of which one leads.
#include <gmock/gmock.h>

#include <string>

#include "tests/unit/worker/core/core_fixture.h"

namespace muster::worker {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

// A stopped process keeps its connections, and its host acknowledges what the worker sends.
TEST_F(CoreTest, ACoordinatorOfSeveralThatAnswersNoHeartbeatIsLeft) {
  connect();
  now += seconds(1);
  step(Tick{});
  EXPECT_THAT(actions_of<Disconnect>(advance(seconds(10))), SizeIs(0)) << "it is the only one";
  step(Disconnected{});
  while (actions_of<Connect>(step(Tick{})).empty()) now += milliseconds(10);
  step(Connected{});
  step(Registered{Epoch(2), seconds(1), StoreId(1), {}, {}, {}, true});
  for (int i = 0; i < 20; ++i) {
    EXPECT_THAT(actions_of<Disconnect>(advance(seconds(1))), SizeIs(0));
    step(HeartbeatAnswered{});
  }
  EXPECT_THAT(actions_of<Disconnect>(advance(seconds(1))), SizeIs(0));
  EXPECT_THAT(actions_of<Disconnect>(advance(seconds(1))), SizeIs(0));
  const auto disconnects = actions_of<Disconnect>(advance(seconds(1)));
  ASSERT_THAT(disconnects, SizeIs(1));
  EXPECT_THAT(disconnects[0].reason, HasSubstr("answers no heartbeat"));
}

TEST_F(CoreTest, AnotherAddressIsTriedAtOnceWithoutBackOff) {
  for (int i = 0; i < 50; ++i) {
    EXPECT_THAT(actions_of<Connect>(step(Tick{})), SizeIs(1)) << i;
    EXPECT_THAT(actions_of<Note>(step(Disconnected{StreamEnd::kElsewhere, "refused"})), SizeIs(0));
  }
  step(Tick{});
  step(Disconnected{StreamEnd::kBroken, "refused"});
  EXPECT_LE(*core.next_deadline() - now, milliseconds(50)) << "the first of its kind";
}

// A coordinator that has begun without etcd, with an old copy of its state, gets no workers,
// however often it starts. One with the newest copy does.
TEST_F(CoreTest, ACoordinatorWithAnOldCopyOfEtcdsStateIsRefused) {
  const auto connect = [&](uint64_t epoch, bool is_replicated, uint64_t left_at = 0) {
    while (actions_of<Connect>(step(Tick{})).empty()) now += milliseconds(10);
    step(Connected{});
    return step(Registered{
        Epoch(epoch), seconds(1), StoreId(1), {}, {}, {}, is_replicated, Epoch(left_at)});
  };
  connect(7, true);
  for (const uint64_t epoch : {3, 7, 8, 9}) {
    for (const uint64_t left_at : {0, 6}) {
      step(Disconnected{});
      const ActionList refused = connect(epoch, false, left_at);
      ASSERT_THAT(actions_of<Disconnect>(refused), SizeIs(1));
      EXPECT_THAT(actions_of<Disconnect>(refused)[0].reason, HasSubstr("it runs without etcd"));
      EXPECT_FALSE(core.registered());
    }
  }
  step(Disconnected{});
  connect(8, false, 7);
  EXPECT_TRUE(core.registered());
  step(Disconnected{});
  connect(9, false, 7);
  EXPECT_TRUE(core.registered());
}

// A worker that has seen a leader refuses its predecessors, on any connection and after any
// reconnection.
TEST_F(CoreTest, ADeposedCoordinatorOfSeveralIsRefused) {
  const auto registered = [](uint64_t epoch) {
    return Registered{Epoch(epoch), seconds(1), StoreId(1), {}, {}, {}, true};
  };
  const auto reconnect = [&](uint64_t epoch) {
    while (actions_of<Connect>(step(Tick{})).empty()) now += milliseconds(10);
    step(Connected{});
    return step(registered(epoch));
  };
  reconnect(7);
  start_up(start(1, 1, 2, 7));
  step(Disconnected{});
  reconnect(8);
  EXPECT_THAT(actions_of<SignalRank>(step(stop(1, 1, {}, 7))), SizeIs(0)) << "a late message";
  for (int i = 0; i < 3; ++i) {
    step(Disconnected{});
    const ActionList refused = reconnect(7);
    ASSERT_THAT(actions_of<Disconnect>(refused), SizeIs(1));
    EXPECT_THAT(actions_of<Disconnect>(refused)[0].reason, HasSubstr("epoch 8, which has deposed"));
    EXPECT_FALSE(core.registered());
    // Its orders, which it sent behind the registration.
    EXPECT_THAT(actions_of<SignalRank>(step(stop(1, 1, {}, 7))), SizeIs(0));
    EXPECT_THAT(actions_of<SpawnRank>(step(start(2, 1, 1, 7))), SizeIs(0));
    EXPECT_THAT(actions_of<SendHeartbeat>(advance(milliseconds(100))), SizeIs(0));
  }
  step(Disconnected{});
  reconnect(9);
  EXPECT_TRUE(core.registered());
  EXPECT_THAT(core.ranks(), SizeIs(2));
  EXPECT_THAT(actions_of<SignalRank>(step(stop(1, 1, {}, 9))), SizeIs(2));
}

}  // namespace
}  // namespace muster::worker
