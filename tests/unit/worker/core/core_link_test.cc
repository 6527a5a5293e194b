// The stream, heartbeats and reports across reconnections.
#include <gmock/gmock.h>

#include <algorithm>
#include <csignal>
#include <limits>

#include "tests/unit/worker/core/core_fixture.h"

namespace muster::worker {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

TEST_F(CoreTest, ConnectsAtOnceAndRegisters) {
  EXPECT_EQ(core.next_deadline(), now);
  EXPECT_THAT(actions_of<Connect>(step(Tick{})), SizeIs(1));
  EXPECT_THAT(actions_of<Connect>(step(Tick{})), SizeIs(0)) << "one stream at a time";
  const auto registers = actions_of<SendRegister>(step(Connected{}));
  ASSERT_THAT(registers, SizeIs(1));
  EXPECT_EQ(registers[0].worker, WorkerName("node0"));
  EXPECT_EQ(registers[0].incarnation, Incarnation(77));
  EXPECT_EQ(registers[0].slots, 4);
  EXPECT_FALSE(core.registered());
  step(Registered{Epoch(3), seconds(1)});
  EXPECT_TRUE(core.registered());
}

TEST_F(CoreTest, RetriesForEverWithinBounds) {
  step(Tick{});
  for (int i = 0; i < 100; ++i) {
    step(Disconnected{StreamEnd::kBroken, "refused"});
    const Duration delay = *core.next_deadline() - now;
    EXPECT_GT(delay, Duration::zero());
    EXPECT_LE(delay, i == 0 ? milliseconds(100) : milliseconds(1000));
    EXPECT_THAT(actions_of<Connect>(advance(delay - milliseconds(1))), SizeIs(0));
    EXPECT_THAT(actions_of<Connect>(advance(milliseconds(1))), SizeIs(1));
  }
}

TEST_F(CoreTest, ARegistrationResetsTheBackOff) {
  step(Tick{});
  for (int i = 0; i < 20; ++i) {
    step(Disconnected{});
    advance(*core.next_deadline() - now);
  }
  step(Connected{});
  step(Registered{Epoch(1), seconds(1)});
  step(Disconnected{});
  EXPECT_LE(*core.next_deadline() - now, milliseconds(100));
}

TEST_F(CoreTest, TheBackOffDependsOnTheIncarnationAlone) {
  CoreOptions other_options = options();
  other_options.incarnation = Incarnation(78);
  Core same(options(), now), other(other_options, now);
  for (Core* c : {&core, &same, &other}) {
    ActionList actions;
    c->step(Tick{}, now, actions);
    c->step(Disconnected{}, now, actions);
  }
  EXPECT_EQ(core.next_deadline(), same.next_deadline());
  EXPECT_NE(core.next_deadline(), other.next_deadline());
}

// TCP repeats the packets of the old connection ever more seldom.
TEST_F(CoreTest, AnUnansweredStreamIsReplacedAtOnceAndTheRanksContinue) {
  connect();
  start_up(start(1, 1, 2));
  EXPECT_THAT(actions_of<Disconnect>(step(StreamUnanswered{})), SizeIs(1));
  EXPECT_THAT(actions_of<SignalRank>(step(Disconnected{})), SizeIs(0));
  EXPECT_THAT(actions_of<Disconnect>(step(StreamUnanswered{})), SizeIs(0)) << "no stream is open";
  EXPECT_LE(*core.next_deadline() - now, milliseconds(100));
  EXPECT_THAT(actions_of<Connect>(advance(milliseconds(100))), SizeIs(1));
  const auto registers = actions_of<SendRegister>(step(Connected{}));
  ASSERT_THAT(registers, SizeIs(1));
  EXPECT_THAT(registers[0].running, SizeIs(2));
}

// While the network is away, several attempts fit into the rest of a lease.
TEST_F(CoreTest, TheFirstConnectionsHaveShortLimits) {
  connect();
  step(Disconnected{});
  for (int i = 0; i < 12; ++i) {
    now = *core.next_deadline();
    const auto connects = actions_of<Connect>(step(Tick{}));
    ASSERT_THAT(connects, SizeIs(1));
    EXPECT_EQ(connects[0].within, i < 7 ? milliseconds(1500) : seconds(5)) << i;
    step(Disconnected{});
  }
}

TEST_F(CoreTest, ACoordinatorThatDoesNotAnswerIsGivenUp) {
  step(Tick{});
  step(Connected{});
  EXPECT_THAT(actions_of<Disconnect>(advance(seconds(4))), SizeIs(0));
  EXPECT_THAT(actions_of<Disconnect>(advance(seconds(1))), SizeIs(1));
  step(Disconnected{});
  EXPECT_THAT(actions_of<Connect>(advance(seconds(1))), SizeIs(1));
}

TEST_F(CoreTest, ARefusalEndsAWorkerThatWasNeverRegistered) {
  step(Tick{});
  step(Connected{});
  const auto exits = actions_of<Exit>(step(Disconnected{StreamEnd::kRefused, "its version is 2"}));
  ASSERT_THAT(exits, SizeIs(1));
  EXPECT_EQ(exits[0].code, 2);
  EXPECT_THAT(exits[0].reason, HasSubstr("its version is 2"));
  EXPECT_TRUE(core.left());
  EXPECT_FALSE(core.next_deadline());
  EXPECT_THAT(step(start(1, 1, 1)), SizeIs(0));
}

// The coordinator was restarted with another version: that is fixed there, and must not affect the
// ranks.
TEST_F(CoreTest, ARefusalDoesNotStopARegisteredWorker) {
  connect();
  start_up(start(1, 1, 2));
  step(Disconnected{});
  for (int i = 0; i < 20; ++i) {
    EXPECT_THAT(actions_of<Connect>(advance(seconds(1))), SizeIs(1));
    step(Connected{});
    const ActionList actions = step(Disconnected{StreamEnd::kRefused, "its version is 2"});
    EXPECT_THAT(actions_of<SignalRank>(actions), SizeIs(0));
    EXPECT_THAT(actions_of<Exit>(actions), SizeIs(0));
    ASSERT_THAT(actions_of<Note>(actions), SizeIs(i == 0 ? 1 : 0)) << "logged once";
    if (i == 0) {
      EXPECT_THAT(actions_of<Note>(actions)[0].text,
                  HasSubstr("ranks that continue: 2): its version is 2"));
    }
  }
  EXPECT_THAT(actions_of<SendRegister>(connect(2)).at(0).running, SizeIs(2));
}

TEST_F(CoreTest, AReplacedWorkerLetsItsRanksCheckpointAndLeaves) {
  connect();
  start_up(start(1, 1, 1));
  const ActionList actions = step(Disconnected{StreamEnd::kReplaced, "its name is taken"});
  EXPECT_THAT(actions_of<Exit>(actions), SizeIs(0));
  ASSERT_THAT(actions_of<SignalRank>(actions), SizeIs(1));
  EXPECT_EQ(actions_of<SignalRank>(actions)[0].signo, SIGTERM);
  const auto exits = actions_of<Exit>(step(RankReaped{key(1, 1, 0), 75, 0, -1, ""}));
  ASSERT_THAT(exits, SizeIs(1));
  EXPECT_EQ(exits[0].code, 2);
}

TEST_F(CoreTest, AnEmptyHeartbeatIsASignOfLifeEachInterval) {
  connect();
  EXPECT_THAT(actions_of<SendHeartbeat>(step(Tick{})), SizeIs(1)) << "the first one at once";
  for (int i = 0; i < 5; ++i) {
    EXPECT_THAT(actions_of<SendHeartbeat>(advance(milliseconds(500))), SizeIs(0));
    const auto heartbeats = actions_of<SendHeartbeat>(advance(milliseconds(500)));
    ASSERT_THAT(heartbeats, SizeIs(1));
    EXPECT_THAT(heartbeats[0].ranks, SizeIs(0));
  }
}

TEST_F(CoreTest, HeartbeatsListOnlyRanksWhoseFiguresChanged) {
  connect();
  const auto up = actions_of<SendHeartbeat>(start_up(start(1, 1, 2)));
  ASSERT_THAT(up, SizeIs(1))
      << "once all ranks of the launch are up, without waiting for the interval";
  EXPECT_THAT(up[0].ranks, SizeIs(2));
  EXPECT_EQ(up[0].ranks[1].pid, 101);

  const auto requests = actions_of<ReadPages>(advance(seconds(1)));
  ASSERT_THAT(requests, SizeIs(1));
  EXPECT_THAT(requests[0].ranks, SizeIs(2));
  RankFigures figures;
  figures.step = 5;
  figures.loss = std::numeric_limits<double>::quiet_NaN();
  figures.last_progress = now - milliseconds(300);
  PageResults pages;
  pages.pages.push_back({key(1, 1, 1), figures});
  const auto changed = actions_of<SendHeartbeat>(step(pages));
  ASSERT_THAT(changed, SizeIs(1));
  ASSERT_THAT(changed[0].ranks, SizeIs(1));
  EXPECT_EQ(changed[0].ranks[0].key, key(1, 1, 1));
  EXPECT_EQ(changed[0].ranks[0].figures.step, 5);
  EXPECT_EQ(changed[0].ranks[0].last_progress_age, milliseconds(300));
  EXPECT_THAT(actions_of<SendHeartbeat>(step(pages))[0].ranks, SizeIs(0))
      << "NaN equals itself here";
}

TEST_F(CoreTest, AReconnectionSendsEveryFigureAgain) {
  connect();
  start_up(start(1, 1, 2));
  step(Disconnected{});
  const auto registers = actions_of<SendRegister>(connect(2));
  ASSERT_THAT(registers, SizeIs(1));
  ASSERT_THAT(registers[0].running, SizeIs(2));
  EXPECT_EQ(registers[0].running[0].pid, 100);
  step(Tick{});
  EXPECT_THAT(actions_of<SendHeartbeat>(step(PageResults{}))[0].ranks, SizeIs(2));
}

TEST_F(CoreTest, NothingIsSentWithoutARegistration) {
  connect();
  start_up(start(1, 1, 1));
  step(Disconnected{});
  ActionList actions = step(RankReaped{key(1, 1, 0), -1, SIGKILL, 9, "x"});
  for (const Action& a : step(PageResults{})) actions.push_back(a);
  EXPECT_THAT(actions_of<SendRankExited>(actions), SizeIs(0));
  EXPECT_THAT(actions_of<SendHeartbeat>(actions), SizeIs(0));
}

TEST_F(CoreTest, TheLastFiguresOfARankGoOutBeforeItsReport) {
  connect();
  start_up(start(1, 1, 1));
  RankFigures figures;
  figures.step = 9;
  figures.loss = 1.25;
  figures.last_progress = now - milliseconds(200);
  const ActionList actions = step(RankReaped{key(1, 1, 0), 0, 0, 9, "", figures});
  ASSERT_THAT(actions.size(), testing::Ge(2U));
  const auto* heartbeat = std::get_if<SendHeartbeat>(&actions[0]);
  ASSERT_NE(heartbeat, nullptr);
  EXPECT_TRUE(std::holds_alternative<SendRankExited>(actions[1]));
  ASSERT_THAT(heartbeat->ranks, SizeIs(1));
  EXPECT_EQ(heartbeat->ranks[0].key, key(1, 1, 0));
  EXPECT_EQ(heartbeat->ranks[0].pid, 100);
  EXPECT_EQ(heartbeat->ranks[0].figures.step, 9);
  EXPECT_EQ(heartbeat->ranks[0].figures.loss, 1.25);
  EXPECT_EQ(heartbeat->ranks[0].last_progress_age, milliseconds(200));
}

TEST_F(CoreTest, ProgressTimesOfPagesAreClamped) {
  connect();
  start_up(start(1, 1, 1));
  for (const int64_t ns :
       {std::numeric_limits<int64_t>::min(), int64_t{-1}, std::numeric_limits<int64_t>::max()}) {
    RankFigures figures;
    figures.last_progress = instant_from_ns(ns);
    figures.step = ns < 0 ? 1 : 2;
    const auto heartbeats = actions_of<SendHeartbeat>(step(PageResults{{{key(1, 1, 0), figures}}}));
    for (const RankProgress& rank : heartbeats.at(0).ranks) {
      EXPECT_EQ(rank.last_progress_age, ns < 0 ? now - Instant{} : Duration::zero());
    }
  }
  RankFigures last;
  last.step = 9;
  last.last_progress = instant_from_ns(std::numeric_limits<int64_t>::min());
  const ActionList actions = step(RankReaped{key(1, 1, 0), 0, 0, 9, "", last});
  EXPECT_EQ(actions_of<SendHeartbeat>(actions).at(0).ranks.at(0).last_progress_age,
            now - Instant{});
}

TEST_F(CoreTest, FiguresThatWereSentAreNotSentAgainAtTheEnd) {
  connect();
  start_up(start(1, 1, 1));
  RankFigures figures;
  figures.step = 9;
  step(PageResults{{{key(1, 1, 0), figures}}});
  EXPECT_THAT(actions_of<SendHeartbeat>(step(RankReaped{key(1, 1, 0), 0, 0, 9, "", figures})),
              SizeIs(0));
}

TEST_F(CoreTest, TheLastFiguresOutliveTheCoordinatorUntilTheirReportIsAcknowledged) {
  connect();
  start_up(start(1, 1, 1));
  step(Disconnected{});
  RankFigures figures;
  figures.step = 9;
  EXPECT_THAT(actions_of<SendHeartbeat>(step(RankReaped{key(1, 1, 0), 0, 0, 9, "", figures})),
              SizeIs(0));
  for (uint64_t epoch = 1; epoch < 3; ++epoch) {
    const ActionList actions = connect(epoch);
    EXPECT_EQ(actions_of<SendHeartbeat>(actions).at(0).ranks[0].figures.step, 9);
    const auto is_figures = [](const Action& a) {
      return std::holds_alternative<SendHeartbeat>(a);
    };
    const auto is_end = [](const Action& a) { return std::holds_alternative<SendRankExited>(a); };
    EXPECT_LT(std::ranges::find_if(actions, is_figures), std::ranges::find_if(actions, is_end));
    step(Disconnected{});
  }
  step(ReportAcked{1});
  EXPECT_THAT(actions_of<SendHeartbeat>(connect(3)), SizeIs(0));
}

TEST_F(CoreTest, ReportsAreRepeatedAfterEachReconnectionUntilAcknowledged) {
  connect();
  start_up(start(1, 1, 2));
  const auto first =
      actions_of<SendRankExited>(step(RankReaped{key(1, 1, 0), -1, SIGKILL, 9, "boom"}));
  ASSERT_THAT(first, SizeIs(1));
  EXPECT_EQ(first[0].signal, SIGKILL);
  EXPECT_EQ(first[0].exit_code, -1);
  EXPECT_EQ(first[0].last_step, 9);
  EXPECT_EQ(first[0].detail, "boom");
  for (uint64_t epoch = 1; epoch < 4; ++epoch) {
    step(Disconnected{});
    const ActionList actions = connect(epoch);
    const auto again = actions_of<SendRankExited>(actions);
    ASSERT_THAT(again, SizeIs(1));
    EXPECT_EQ(again[0].report_id, first[0].report_id);
    EXPECT_THAT(actions_of<SendRegister>(actions)[0].running, SizeIs(2))
        << "what is not acknowledged is listed";
  }
  EXPECT_THAT(actions_of<ForgetRank>(step(ReportAcked{first[0].report_id})), SizeIs(1));
  EXPECT_THAT(actions_of<ForgetRank>(step(ReportAcked{first[0].report_id})), SizeIs(0));
  step(ReportAcked{12345});
  step(Disconnected{});
  const ActionList actions = connect();
  EXPECT_THAT(actions_of<SendRankExited>(actions), SizeIs(0));
  EXPECT_THAT(actions_of<SendRegister>(actions)[0].running, SizeIs(1));
}

// A coordinator with an empty state directory on the port of the earlier one: its job 1 is another
// job.
TEST_F(CoreTest, AWorkerDropsTheEarlierStoresState) {
  connect(1, 1);
  start_up(start(1, 1, 2));
  step(RankReaped{key(1, 1, 1), 1, 0, 3, ""});  // its end is not acknowledged
  step(Disconnected{});
  ActionList actions = connect(1, 2);
  EXPECT_EQ(actions_of<SendRegister>(actions).at(0).store, StoreId(1)) << "whose ranks it lists";
  EXPECT_THAT(actions_of<SendRankExited>(actions), SizeIs(0))
      << "it would be taken for the new job 1";
  EXPECT_THAT(actions_of<Disconnect>(actions), SizeIs(1));
  ASSERT_THAT(actions_of<SignalRank>(actions), SizeIs(1));
  EXPECT_EQ(actions_of<SignalRank>(actions)[0].signo, SIGTERM);
  ASSERT_THAT(actions_of<DropLog>(actions), SizeIs(1));
  EXPECT_EQ(actions_of<DropLog>(actions)[0].key, key(1, 1, 1));
  EXPECT_FALSE(core.registered());
  EXPECT_THAT(actions_of<SpawnRank>(step(start(1, 1, 1))), SizeIs(0))
      << "on its way when the stream ended";
  step(Disconnected{});
  EXPECT_THAT(actions_of<Connect>(advance(seconds(2))), SizeIs(0))
      << "not before the last one is gone";
  EXPECT_THAT(actions_of<SignalRank>(advance(kLeaveGrace - seconds(2))), SizeIs(1))
      << "its grace has an end";

  actions = step(RankReaped{key(1, 1, 0), -1, SIGKILL, 9, ""});
  EXPECT_THAT(actions_of<DropLog>(actions), SizeIs(1));
  actions = connect(1, 2);
  EXPECT_EQ(actions_of<SendRegister>(actions).at(0).store, StoreId(2));
  EXPECT_THAT(actions_of<SendRegister>(actions)[0].running, SizeIs(0));
  EXPECT_THAT(actions_of<SendRankExited>(actions), SizeIs(0));
  EXPECT_TRUE(core.registered());
  const auto kept = actions_of<KeepLocalCopies>(actions);
  ASSERT_THAT(kept, SizeIs(2));
  EXPECT_EQ(kept[1].store, StoreId(1))
      << "no later job will read what its jobs have left in memory";
  EXPECT_THAT(kept[1].jobs, SizeIs(0));
  EXPECT_THAT(actions_of<SpawnRank>(step(start(1, 1, 2))), SizeIs(2)) << "job 1 of the new store";
}

TEST_F(CoreTest, AnotherIntervalIsTakenWithinBounds) {
  connect();
  step(Registered{Epoch(1), Duration::zero(), StoreId(1)});
  step(Tick{});
  EXPECT_GT(*core.next_deadline(), now) << "an interval of nothing would spin";
  step(Registered{Epoch(1), std::chrono::hours(1000), StoreId(1)});
  step(Tick{});
  EXPECT_LE(*core.next_deadline() - now, std::chrono::minutes(1));
}

}  // namespace
}  // namespace muster::worker
