// Starting and stopping ranks.
#include <gmock/gmock.h>

#include <csignal>
#include <limits>

#include "common/random/philox.h"
#include "tests/unit/worker/core/core_fixture.h"

namespace muster::worker {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

TEST_F(CoreTest, StartsEveryRankOfALaunchOnce) {
  connect();
  const auto spawns = actions_of<SpawnRank>(step(start(1, 1, 4)));
  ASSERT_THAT(spawns, SizeIs(4));
  EXPECT_EQ(spawns[2].key, key(1, 1, 2));
  EXPECT_EQ(spawns[2].local_rank, 2);
  EXPECT_EQ(spawns[0].launch, spawns[3].launch) << "one copy of the config";
  EXPECT_THAT(actions_of<SpawnRank>(step(start(1, 1, 4))), SizeIs(0)) << "a repeated message";
}

TEST_F(CoreTest, ARepeatedStartAfterTheEndStartsNothing) {
  connect();
  start_up(start(1, 1, 1));
  step(RankReaped{key(1, 1, 0), 0, 0, 10, ""});
  step(ReportAcked{1});
  const ActionList actions = step(start(1, 1, 1));
  EXPECT_THAT(actions_of<SpawnRank>(actions), SizeIs(0));
  EXPECT_THAT(actions_of<SendRankExited>(actions), SizeIs(0));
}

TEST_F(CoreTest, AStaleAttemptIsRefused) {
  connect();
  start_up(start(1, 3, 1));
  const ActionList actions = step(start(1, 2, 1));
  EXPECT_THAT(actions_of<SpawnRank>(actions), SizeIs(0));
  EXPECT_THAT(actions_of<SignalRank>(actions), SizeIs(0));
  ASSERT_THAT(actions_of<Note>(actions), SizeIs(1));
  EXPECT_THAT(actions_of<Note>(actions)[0].text, HasSubstr("attempt 3 has been seen"));
  EXPECT_THAT(actions_of<SpawnRank>(step(start(2, 1, 1))), SizeIs(1))
      << "other jobs are not concerned";
}

TEST_F(CoreTest, AStaleEpochIsRefusedAndALowerRegistrationIsAnOlderCopyOfTheStore) {
  connect(5);
  EXPECT_THAT(actions_of<SpawnRank>(step(start(1, 1, 1, 4))), SizeIs(0));
  start_up(start(1, 1, 1, 5));
  EXPECT_THAT(actions_of<SignalRank>(step(stop(1, 1, Duration::zero(), 4))), SizeIs(0));
  step(RankReaped{key(1, 1, 0), 0, 0, 1, ""});
  step(ReportAcked{1});
  EXPECT_THAT(actions_of<SpawnRank>(step(start(1, 1, 1, 5))), SizeIs(0));
  step(Disconnected{});
  connect(1);
  EXPECT_THAT(actions_of<SpawnRank>(step(start(1, 1, 1, 1))), SizeIs(1)) << "job 1 again";
}

TEST_F(CoreTest, ANewAttemptKillsTheOldOneAndWaitsForItsEnd) {
  connect();
  start_up(start(1, 1, 3));
  ActionList actions = step(start(1, 2, 3));
  EXPECT_THAT(actions_of<SignalRank>(actions), SizeIs(3));
  EXPECT_THAT(actions_of<SpawnRank>(actions), SizeIs(0));
  EXPECT_THAT(actions_of<SpawnRank>(step(RankReaped{key(1, 1, 0), -1, SIGKILL, 1, ""})), SizeIs(0));
  EXPECT_THAT(actions_of<SpawnRank>(step(RankReaped{key(1, 1, 1), -1, SIGKILL, 1, ""})), SizeIs(0));
  actions = step(RankReaped{key(1, 1, 2), -1, SIGKILL, 1, ""});
  EXPECT_THAT(actions_of<SpawnRank>(actions), SizeIs(3));
  ASSERT_THAT(actions_of<EndLaunch>(actions), SizeIs(1));
  EXPECT_EQ(actions_of<EndLaunch>(actions)[0].launch.attempt, Attempt(1));
}

TEST_F(CoreTest, AReportShowsWhetherTheRankWasStopped) {
  connect();
  start_up(start(1, 1, 2));
  auto reports = actions_of<SendRankExited>(step(RankReaped{key(1, 1, 0), 0, 0, 1, ""}));
  ASSERT_THAT(reports, SizeIs(1));
  EXPECT_FALSE(reports[0].told_to_stop);
  step(stop(1, 1, seconds(1)));
  reports = actions_of<SendRankExited>(step(RankReaped{key(1, 1, 1), 0, 0, 1, ""}));
  ASSERT_THAT(reports, SizeIs(1));
  EXPECT_TRUE(reports[0].told_to_stop);
}

TEST_F(CoreTest, MoreRanksThanSlotsAreRefusedWithTheNumbers) {
  connect();
  start_up(start(1, 1, 3));
  const ActionList actions = step(start(2, 1, 2));
  EXPECT_THAT(actions_of<SpawnRank>(actions), SizeIs(0));
  const auto reports = actions_of<SendRankExited>(actions);
  ASSERT_THAT(reports, SizeIs(2)) << "each rank is answered, so that the coordinator does not wait";
  EXPECT_THAT(reports[0].detail, HasSubstr("needs 2 slots and worker node0 has 1 of 4 free"));
  EXPECT_NE(reports[0].exit_code, 0);
  EXPECT_THAT(actions_of<SpawnRank>(step(start(3, 1, 1))), SizeIs(1));
}

TEST_F(CoreTest, SlotsAreNeverExceededWhileAnOldAttemptDies) {
  connect();
  start_up(start(1, 1, 4));
  step(start(1, 2, 1));
  EXPECT_THAT(actions_of<SpawnRank>(step(start(2, 1, 3))), SizeIs(0))
      << "accepted, but the old ranks still run";
  size_t alive = 4;
  for (int32_t r = 0; r < 4; ++r) {
    --alive;
    alive += actions_of<SpawnRank>(step(RankReaped{key(1, 1, r), -1, SIGKILL, 1, ""})).size();
    EXPECT_LE(alive, 4U);
  }
  EXPECT_EQ(alive, 4U);
}

TEST_F(CoreTest, NonsenseIsRefusedOrIgnored) {
  connect();
  std::vector<StartRanks> nonsense(7, start(1, 1, 2));
  nonsense[0].launch.job = JobId(0);
  nonsense[1].launch.attempt = Attempt(0);
  nonsense[2].launch.ranks.clear();
  nonsense[3].launch.ranks[1] = nonsense[3].launch.ranks[0];
  nonsense[4].launch.ranks[0].rank = Rank(-7);
  nonsense[5].launch.ranks[0].local_rank = 2;
  nonsense[6].launch.spec.nodes = std::numeric_limits<int32_t>::max();
  for (size_t i = 0; i < nonsense.size(); ++i) {
    if (i >= 3) nonsense[i].launch.job = JobId(10 + i);
    EXPECT_THAT(actions_of<SpawnRank>(step(nonsense[i])), SizeIs(0)) << i;
  }
  step(stop(0, 0, seconds(1)));
  step(RankStarted{key(9, 9, 9), 5});
  step(RankReaped{key(9, 9, 9), 0, 0, 0, ""});
  step(SpawnFailed{key(9, 9, 9), "x"});
  EXPECT_TRUE(core.ranks().empty());
}

TEST_F(CoreTest, StopSendsSigtermAndAfterTheGraceSigkill) {
  connect();
  start_up(start(1, 1, 2));
  auto signals = actions_of<SignalRank>(step(stop(1, 1, seconds(3))));
  ASSERT_THAT(signals, SizeIs(2));
  EXPECT_EQ(signals[0].signo, SIGTERM);
  EXPECT_THAT(actions_of<SignalRank>(step(stop(1, 1, seconds(9)))), SizeIs(0))
      << "a repeat prolongs nothing";
  step(RankReaped{key(1, 1, 0), 75, 0, 4, ""});
  EXPECT_THAT(actions_of<SignalRank>(advance(milliseconds(2999))), SizeIs(0));
  signals = actions_of<SignalRank>(advance(milliseconds(1)));
  ASSERT_THAT(signals, SizeIs(1));
  EXPECT_EQ(signals[0].signo, SIGKILL);
  EXPECT_EQ(signals[0].key, key(1, 1, 1));
  EXPECT_THAT(actions_of<SignalRank>(advance(seconds(5))), SizeIs(0));
}

TEST_F(CoreTest, StopWithoutGraceKillsAtOnceEvenAfterSigterm) {
  connect();
  start_up(start(1, 1, 1));
  step(stop(1, 1, seconds(30)));
  const auto signals = actions_of<SignalRank>(step(stop(1, 1, Duration::zero())));
  ASSERT_THAT(signals, SizeIs(1));
  EXPECT_EQ(signals[0].signo, SIGKILL);
}

TEST_F(CoreTest, StopMeansOneAttemptOfOneJob) {
  connect();
  start_up(start(1, 2, 2));
  start_up(start(2, 1, 1));
  EXPECT_THAT(actions_of<SignalRank>(step(stop(1, 1, Duration::zero()))), SizeIs(0));
  EXPECT_THAT(actions_of<SignalRank>(step(stop(3, 1, Duration::zero()))), SizeIs(0));
}

TEST_F(CoreTest, StopWhileARankIsBeingSpawnedReachesItOnceItIsUp) {
  connect();
  step(start(1, 1, 2));
  EXPECT_THAT(actions_of<SignalRank>(step(stop(1, 1, seconds(1)))), SizeIs(0));
  auto signals = actions_of<SignalRank>(step(RankStarted{key(1, 1, 0), 100}));
  ASSERT_THAT(signals, SizeIs(1));
  EXPECT_EQ(signals[0].signo, SIGTERM);
  advance(seconds(2));
  signals = actions_of<SignalRank>(step(RankStarted{key(1, 1, 1), 101}));
  ASSERT_THAT(signals, SizeIs(1));
  EXPECT_EQ(signals[0].signo, SIGKILL);
}

TEST_F(CoreTest, StopBeforeTheSpawnEndsTheRankWithoutAProcess) {
  connect();
  start_up(start(1, 1, 2));
  step(start(1, 2, 2));  // waits for attempt 1
  const auto reports = actions_of<SendRankExited>(step(stop(1, 2, seconds(1))));
  ASSERT_THAT(reports, SizeIs(2));
  EXPECT_THAT(reports[0].detail, HasSubstr("before it was started"));
  step(RankReaped{key(1, 1, 0), -1, SIGKILL, 1, ""});
  EXPECT_THAT(actions_of<SpawnRank>(step(RankReaped{key(1, 1, 1), -1, SIGKILL, 1, ""})), SizeIs(0));
}

TEST_F(CoreTest, AStopThatOvertakesItsStartStillHolds) {
  connect();
  step(stop(1, 1, seconds(1)));
  const ActionList actions = step(start(1, 1, 2));
  EXPECT_THAT(actions_of<SpawnRank>(actions), SizeIs(0));
  EXPECT_THAT(actions_of<SendRankExited>(actions), SizeIs(2));
  EXPECT_THAT(actions_of<SendRankExited>(step(start(1, 1, 2))), SizeIs(0)) << "answered once";
  EXPECT_THAT(actions_of<SpawnRank>(step(start(1, 2, 2))), SizeIs(2))
      << "the next attempt is another matter";
}

TEST_F(CoreTest, RanksThatTheCoordinatorAwaitsAndThatAreNotHereAreAnswered) {
  connect();
  const ActionList actions = step(stop(1, 1, Duration::zero(), 1, {Rank(0), Rank(1), Rank(1)}));
  const auto reports = actions_of<SendRankExited>(actions);
  ASSERT_THAT(reports, SizeIs(2));
  EXPECT_EQ(reports[1].key, key(1, 1, 1));
  EXPECT_EQ(reports[1].detail, "not running here");
  EXPECT_NE(reports[1].exit_code, 0);
  EXPECT_THAT(actions_of<SendRankExited>(step(stop(1, 1, Duration::zero(), 1, {Rank(0)}))),
              SizeIs(0))
      << "the report is on its way";
  start_up(start(2, 1, 1));
  EXPECT_THAT(actions_of<SendRankExited>(step(stop(2, 1, seconds(1), 1, {Rank(0)}))), SizeIs(0))
      << "it runs here";
}

// Ranks of other nodes may have left keys in this worker's rendezvous for a rank 0 that never
// started.
TEST_F(CoreTest, ALaunchThatNeverRanLeavesNoRendezvousKeys) {
  connect();
  start_up(start(1, 1, 3));
  const auto refused = actions_of<EndLaunch>(step(start(2, 1, 2)));
  ASSERT_THAT(refused, SizeIs(1));
  EXPECT_EQ(refused[0].launch, (LaunchKey{JobId(2), Attempt(1)}));
  const auto absent = actions_of<EndLaunch>(step(stop(3, 4, seconds(1), 1, {Rank(0)})));
  ASSERT_THAT(absent, SizeIs(1));
  EXPECT_EQ(absent[0].launch, (LaunchKey{JobId(3), Attempt(4)}));
  EXPECT_THAT(actions_of<EndLaunch>(step(stop(1, 1, seconds(1), 1, {Rank(3)}))), SizeIs(0))
      << "its other ranks are here";
}

TEST_F(CoreTest, AFailedSpawnIsReportedWithItsReason) {
  connect();
  step(start(1, 1, 2));
  const ActionList actions = step(SpawnFailed{
      key(1, 1, 0), "executing /x: No such file or directory", 1, ExitCause::kNodeFault});
  ASSERT_THAT(actions_of<SendRankExited>(actions), SizeIs(1));
  EXPECT_THAT(actions_of<SendRankExited>(actions)[0].detail, HasSubstr("No such file"));
  EXPECT_EQ(actions_of<SendRankExited>(actions)[0].exit_code, 1);
  EXPECT_EQ(actions_of<SendRankExited>(actions)[0].cause, ExitCause::kNodeFault);
  EXPECT_THAT(actions_of<EndLaunch>(actions), SizeIs(0)) << "rank 1 still lives";
}

TEST_F(CoreTest, TheLastStepFallsBackToTheLastHeartbeats) {
  connect();
  start_up(start(1, 1, 1));
  RankFigures figures;
  figures.step = 41;
  step(PageResults{{{key(1, 1, 0), figures}}});
  EXPECT_EQ(actions_of<SendRankExited>(step(RankReaped{key(1, 1, 0), 1, 0, -1, ""}))[0].last_step,
            41);
}

TEST_F(CoreTest, RanksRunOnWhileTheCoordinatorIsAway) {
  connect();
  start_up(start(1, 1, 2));
  step(Disconnected{});
  for (int i = 0; i < 1000; ++i) {
    ASSERT_THAT(actions_of<SignalRank>(advance(seconds(1))), SizeIs(0));
    step(Disconnected{});
  }
  EXPECT_THAT(core.ranks(), SizeIs(2));
}

// Random events in random order: the core never exceeds its slots, spawns nothing twice, keeps
// every report until it is acknowledged, and never gets stuck.
TEST_F(CoreTest, SurvivesArbitraryEvents) {
  const Philox random{20260101, 0};
  std::set<RankKey> spawned;
  std::set<RankKey> alive;
  std::set<uint64_t> reported;
  for (uint64_t i = 0; i < 200'000 && !core.left(); ++i) {
    const Philox::Block r = random(i);
    const RankKey rank = key(r[1] % 4, (r[1] >> 8) % 5, static_cast<int32_t>((r[1] >> 16) % 4));
    Event event = Tick{};
    switch (r[0] % 12) {
      case 0:
        event = Connected{};
        break;
      case 1:
        event = Disconnected{};
        break;
      case 2:
        event = Registered{Epoch(1 + r[2] % 2), milliseconds(r[2] % 2000), StoreId(r[3] % 16 == 0)};
        break;
      case 3:
      case 4:
        event =
            start(rank.job.value(), rank.attempt.value(), 1 + static_cast<int32_t>(r[2] % 5), 2);
        break;
      case 5:
        event =
            stop(rank.job.value(), rank.attempt.value(), milliseconds(r[2] % 1000), 2, {rank.rank});
        break;
      case 6:
        event = ReportAcked{r[2] % (reported.size() + 1)};
        break;
      case 7:
        if (alive.contains(rank)) event = RankStarted{rank, 1};
        break;
      case 8:
        if (alive.contains(rank)) event = RankReaped{rank, 0, 0, 1, ""};
        break;
      case 9:
        event = PageResults{{{rank, RankFigures{}}}};
        break;
      default:
        now += milliseconds(r[2] % 500);
        break;
    }
    if (std::holds_alternative<RankReaped>(event)) alive.erase(rank);
    const ActionList actions = step(event);
    if (!actions_of<Disconnect>(actions).empty()) step(Disconnected{});
    for (const SpawnRank& spawn : actions_of<SpawnRank>(actions)) {
      // Another store may repeat numbers, but not those of living ranks.
      ASSERT_TRUE(alive.insert(spawn.key).second);
      spawned.insert(spawn.key);
    }
    for (const SendRankExited& report : actions_of<SendRankExited>(actions))
      reported.insert(report.report_id);
    ASSERT_LE(alive.size(), 4U);
    // Ranks of an earlier store are waited for without a limit.
    ASSERT_TRUE(core.next_deadline().has_value() || !core.ranks().empty());
  }
  EXPECT_FALSE(core.left());
  EXPECT_GT(spawned.size(), 20U);
}

// SIGUSR2 kills a program without a handler.
TEST_F(CoreTest, CheckpointRequestsRequireSupportInThePage) {
  connect();
  const SaveCheckpoint request{Epoch(1), key(1, 1, 0)};
  EXPECT_TRUE(actions_of<SignalRank>(step(request)).empty()) << "no rank is here";
  start_up(start(1, 1, 2));
  EXPECT_TRUE(actions_of<SignalRank>(step(request)).empty()) << "it has no page yet";
  RankFigures figures;
  figures.checkpoints.on_request = 1;
  step(PageResults{{{key(1, 1, 0), figures}}});
  const auto signals = actions_of<SignalRank>(step(request));
  ASSERT_EQ(signals.size(), 1U);
  EXPECT_EQ(signals[0].key, key(1, 1, 0));
  EXPECT_EQ(signals[0].signo, SIGUSR2);
  for (const SaveCheckpoint& other :
       {SaveCheckpoint{Epoch(0), key(1, 1, 0)}, SaveCheckpoint{Epoch(1), key(1, 1, 1)},
        SaveCheckpoint{Epoch(1), key(1, 2, 0)}})
    EXPECT_TRUE(actions_of<SignalRank>(step(other)).empty());
}

}  // namespace
}  // namespace muster::worker
