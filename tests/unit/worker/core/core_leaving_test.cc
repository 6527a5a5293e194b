// A worker's leave: its announcements, signals and waits.
#include <gmock/gmock.h>

#include <algorithm>
#include <csignal>
#include <map>

#include <gtest/gtest.h>

#include "common/process/exit_code.h"
#include "tests/unit/worker/core/core_fixture.h"

namespace muster::worker {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

// Job 1 has two nodes, one of which is another worker.
class CoreWithPeersElsewhere : public CoreTest {
 protected:
  static constexpr Duration kWait = kLeaveGrace / kCoordinatorWaitFraction;

  static StartRanks wide(int32_t ranks_here) {
    StartRanks event = start(1, 1, ranks_here);
    event.launch.spec.nodes = 2;
    return event;
  }
  void start_wide(int32_t ranks_here) {
    connect();
    start_up(wide(ranks_here));
  }
  // Returns the ranks that `actions` signal, with the signal.
  static std::map<RankKey, int> signalled(const ActionList& actions) {
    std::map<RankKey, int> all;
    for (const SignalRank& signal : actions_of<SignalRank>(actions)) all[signal.key] = signal.signo;
    return all;
  }
  using Signals = std::map<RankKey, int>;
};

TEST_F(CoreTest, LeavingStopsRanksReportsAndWaitsForTheAcknowledgement) {
  connect();
  start_up(start(1, 1, 1));
  ActionList actions = step(ShutdownRequested{});
  ASSERT_THAT(actions_of<SignalRank>(actions), SizeIs(1));
  EXPECT_EQ(actions_of<SignalRank>(actions)[0].signo, SIGTERM);
  actions = step(RankReaped{key(1, 1, 0), 75, 0, 3, ""});
  ASSERT_THAT(actions_of<SendRankExited>(actions), SizeIs(1));
  EXPECT_EQ(actions_of<SendRankExited>(actions)[0].detail, "stopped: its worker is leaving");
  EXPECT_THAT(actions_of<Exit>(actions), SizeIs(0));
  const auto exits = actions_of<Exit>(step(ReportAcked{1}));
  ASSERT_THAT(exits, SizeIs(1));
  EXPECT_EQ(exits[0].code, 0);
}

// Announced before its ranks are signalled, and in each registration, so that the coordinator stops
// their peers on other workers, too.
TEST_F(CoreTest, LeavingIsSentFirstAndAgainAfterEachReconnection) {
  connect();
  start_up(start(1, 1, 2));
  ActionList actions = step(ShutdownRequested{});
  ASSERT_FALSE(actions.empty());
  ASSERT_TRUE(std::holds_alternative<SendLeaving>(actions[0]));
  EXPECT_EQ(std::get<SendLeaving>(actions[0]).grace, kLeaveGrace);
  EXPECT_THAT(actions_of<SignalRank>(actions), SizeIs(2));
  step(Disconnected{});
  now += seconds(5);
  step(RankReaped{key(1, 1, 0), -1, SIGKILL, 3, ""});
  actions = connect();
  const auto registers = actions_of<SendRegister>(actions);
  ASSERT_THAT(registers, SizeIs(1));
  ASSERT_TRUE(registers[0].leaving.has_value());
  EXPECT_LE(*registers[0].leaving, kLeaveGrace - seconds(5)) << "what is left of it";
  const auto is = [&](auto tag) {
    return std::find_if(actions.begin(), actions.end(), [](const Action& action) {
      return std::holds_alternative<decltype(tag)>(action);
    });
  };
  ASSERT_NE(is(SendLeaving{}), actions.end());
  EXPECT_LT(is(SendLeaving{}), is(SendRankExited{})) << "a rank that it has killed is no fault";
}

TEST_F(CoreTest, ARegistrationWithoutLeavingHasNoGrace) {
  const ActionList actions = connect();
  EXPECT_FALSE(actions_of<SendRegister>(actions).at(0).leaving.has_value());
  EXPECT_THAT(actions_of<SendLeaving>(actions), SizeIs(0));
}

TEST_F(CoreTest, LeavingDoesNotWaitForEverForAnAcknowledgement) {
  connect();
  start_up(start(1, 1, 1));
  step(ShutdownRequested{});
  step(RankReaped{key(1, 1, 0), 75, 0, 3, ""});
  EXPECT_THAT(actions_of<Exit>(advance(milliseconds(900))), SizeIs(0));
  EXPECT_THAT(actions_of<Exit>(advance(milliseconds(100))), SizeIs(1));
}

TEST_F(CoreTest, LeavingWithoutRanksOrCoordinatorIsImmediate) {
  EXPECT_THAT(actions_of<Exit>(step(ShutdownRequested{})), SizeIs(1));
}

// The ranks agree on the step after which they leave: otherwise a peer elsewhere would exit with
// code 75 before the coordinator has the reason.
TEST_F(CoreWithPeersElsewhere, TheCoordinatorStopsRanksOfALeavingWorker) {
  start_wide(2);
  ActionList actions = step(ShutdownRequested{});
  EXPECT_THAT(actions_of<SendLeaving>(actions), SizeIs(1));
  EXPECT_EQ(signalled(actions), Signals());
  EXPECT_THAT(actions_of<Note>(actions).at(0).text, HasSubstr("other nodes: 2; their coordinator"));
  actions = step(stop(1, 1, kLeaveGrace));
  EXPECT_EQ(signalled(actions), (Signals{{key(1, 1, 0), SIGTERM}, {key(1, 1, 1), SIGTERM}}));
  actions = advance(kCoordinatorAnswerMax);
  EXPECT_EQ(signalled(actions), Signals()) << "stopped once";
  EXPECT_THAT(actions_of<Note>(actions), SizeIs(0));
}

// Does not use SIGTERM: the operator may have signalled the ranks, too, which would take it for a
// second request and save nothing.
TEST_F(CoreWithPeersElsewhere, TheWaitForASilentCoordinatorIsShort) {
  start_wide(1);
  step(ShutdownRequested{});
  EXPECT_EQ(signalled(advance(kCoordinatorAnswerMax - milliseconds(1))), Signals());
  const ActionList actions = advance(milliseconds(1));
  EXPECT_EQ(signalled(actions), (Signals{{key(1, 1, 0), SIGUSR1}}));
  EXPECT_THAT(actions_of<Note>(actions).at(0).text,
              HasSubstr("that the coordinator has not stopped: 1;"));
}

TEST_F(CoreWithPeersElsewhere, ProgramsAreStoppedBySigterm) {
  connect();
  StartRanks program = wide(1);
  program.launch.spec.command = {"train"};
  start_up(program);
  step(ShutdownRequested{});
  EXPECT_EQ(signalled(advance(kCoordinatorAnswerMax)), (Signals{{key(1, 1, 0), SIGTERM}}));
}

TEST_F(CoreWithPeersElsewhere, RanksOfOtherJobsAreStoppedAtOnce) {
  start_wide(1);
  start_up(start(2, 1, 1));
  EXPECT_EQ(signalled(step(ShutdownRequested{})), (Signals{{key(2, 1, 0), SIGTERM}}));
}

// Ranks that wait for an older attempt's slots are never started.
TEST_F(CoreWithPeersElsewhere, ALeavingWorkerStartsNothing) {
  connect();
  start_up(start(1, 1, 4));
  StartRanks next = wide(4);
  next.launch.attempt = Attempt(2);
  EXPECT_THAT(actions_of<SpawnRank>(step(next)), SizeIs(0));
  ActionList actions = step(ShutdownRequested{});
  EXPECT_THAT(actions_of<SendRankExited>(actions), SizeIs(4));
  for (int32_t rank = 0; rank < 4; ++rank)
    EXPECT_THAT(actions_of<SpawnRank>(step(RankReaped{key(1, 1, rank), -1, SIGKILL, 3, ""})),
                SizeIs(0));
}

// The operator may have signalled the ranks, too: a program that ends meanwhile has not succeeded.
// One reaped before has.
TEST_F(CoreWithPeersElsewhere, RanksThatEndWhileLeavingCountAsStopped) {
  start_wide(2);
  step(ShutdownRequested{});
  for (const bool meanwhile : {false, true}) {
    RankReaped end{key(1, 1, meanwhile ? 1 : 0), 0, 0, 3, ""};
    end.worker_left = meanwhile;
    const auto ends = actions_of<SendRankExited>(step(end));
    ASSERT_THAT(ends, SizeIs(1));
    EXPECT_EQ(ends[0].told_to_stop, meanwhile);
  }
}

// The coordinator may grant more, to a job that grows or to workers that stay.
TEST_F(CoreWithPeersElsewhere, RankGraceIsCappedAtTheWorkersDeadline) {
  start_wide(1);
  step(ShutdownRequested{});
  step(stop(1, 1, seconds(120)));
  EXPECT_EQ(signalled(advance(kLeaveGrace - milliseconds(1))), Signals());
  EXPECT_EQ(signalled(advance(milliseconds(1))), (Signals{{key(1, 1, 0), SIGKILL}}));
}

// An upgrade restarts both at the same moment, in random order.
TEST_F(CoreWithPeersElsewhere, RanksWaitForACoordinatorThatDisconnectsMeanwhile) {
  start_wide(1);
  step(ShutdownRequested{});
  now += milliseconds(100);
  step(Disconnected{});
  EXPECT_EQ(signalled(advance(kWait - milliseconds(101))), Signals());
  EXPECT_EQ(signalled(advance(milliseconds(1))), (Signals{{key(1, 1, 0), SIGUSR1}}));
}

// An upgrade restarts both at once: the coordinator stops the peers on other workers when it is
// back.
TEST_F(CoreWithPeersElsewhere, RanksWaitForAnAbsentCoordinator) {
  start_wide(2);
  step(Disconnected{});
  EXPECT_EQ(signalled(step(ShutdownRequested{})), Signals());
  now += seconds(3);
  const ActionList actions = connect();
  EXPECT_THAT(actions_of<SendLeaving>(actions), SizeIs(1));
  EXPECT_EQ(signalled(actions), Signals());
  EXPECT_EQ(signalled(step(stop(1, 1, kLeaveGrace - seconds(3)))),
            (Signals{{key(1, 1, 0), SIGUSR1}, {key(1, 1, 1), SIGUSR1}}));
  EXPECT_EQ(signalled(advance(kLeaveGrace)),
            (Signals{{key(1, 1, 0), SIGKILL}, {key(1, 1, 1), SIGKILL}}))
      << "once their grace is over";
}

TEST_F(CoreWithPeersElsewhere, TheWaitForAnAbsentCoordinatorIsBounded) {
  start_wide(1);
  step(Disconnected{});
  step(ShutdownRequested{});
  ASSERT_TRUE(core.next_deadline().has_value());
  EXPECT_EQ(signalled(advance(kWait - milliseconds(1))), Signals());
  EXPECT_EQ(signalled(advance(milliseconds(1))), (Signals{{key(1, 1, 0), SIGUSR1}}));
  EXPECT_EQ(signalled(advance(kLeaveGrace - kWait)), (Signals{{key(1, 1, 0), SIGKILL}}));
}

TEST_F(CoreWithPeersElsewhere, ACoordinatorOfAnotherStoreDoesNotExtendTheGrace) {
  start_wide(1);
  step(Disconnected{});
  step(ShutdownRequested{});
  now += seconds(5);
  EXPECT_EQ(signalled(connect(1, /*store=*/2)), (Signals{{key(1, 1, 0), SIGUSR1}}));
  EXPECT_EQ(signalled(advance(kLeaveGrace - seconds(5))), (Signals{{key(1, 1, 0), SIGKILL}}));
}

TEST_F(CoreTest, RanksWithoutPeersElsewhereStopAtOnce) {
  connect();
  start_up(start(1, 1, 2));
  step(Disconnected{});
  EXPECT_THAT(actions_of<SignalRank>(step(ShutdownRequested{})), SizeIs(2));
}

TEST_F(CoreWithPeersElsewhere, ASecondRequestEndsTheWait) {
  start_wide(1);
  step(ShutdownRequested{});
  const auto kills = actions_of<SignalRank>(step(ShutdownRequested{}));
  ASSERT_THAT(kills, SizeIs(1));
  EXPECT_EQ(kills[0].signo, SIGKILL);
}

TEST_F(CoreTest, LeavingKillsAfterTheGraceAndAtOnceAfterASecondRequest) {
  connect();
  start_up(start(1, 1, 1));
  step(ShutdownRequested{});
  const auto kills = actions_of<SignalRank>(step(ShutdownRequested{}));
  ASSERT_THAT(kills, SizeIs(1));
  EXPECT_EQ(kills[0].signo, SIGKILL);
  EXPECT_THAT(actions_of<SignalRank>(advance(seconds(10))), SizeIs(0)) << "killed once";
}

TEST_F(CoreTest, LeavingDoesNotWaitForEverForAProcessThatCannotBeKilled) {
  connect();
  start_up(start(1, 1, 1));
  step(ShutdownRequested{});
  EXPECT_THAT(actions_of<Exit>(advance(kLeaveGrace)), SizeIs(0));
  EXPECT_THAT(actions_of<Exit>(advance(kLeaveWithout - milliseconds(1))), SizeIs(0));
  ASSERT_TRUE(core.next_deadline().has_value());
  EXPECT_LE(*core.next_deadline(), now + milliseconds(1));
  EXPECT_THAT(actions_of<Exit>(advance(milliseconds(1))), SizeIs(1));
}

TEST_F(CoreTest, ALeavingWorkerRefusesNewRanks) {
  connect();
  start_up(start(1, 1, 1));
  step(ShutdownRequested{});
  const ActionList actions = step(start(2, 1, 1));
  EXPECT_THAT(actions_of<SpawnRank>(actions), SizeIs(0));
  ASSERT_THAT(actions_of<SendRankExited>(actions), SizeIs(1));
  EXPECT_THAT(actions_of<SendRankExited>(actions)[0].detail, HasSubstr("leaving"));
  EXPECT_EQ(actions_of<SendRankExited>(actions)[0].exit_code, to_int(ExitCode::kPreempted));
}

}  // namespace
}  // namespace muster::worker
