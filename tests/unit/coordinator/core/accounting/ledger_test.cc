#include "coordinator/core/accounting/ledger.h"

#include <random>
#include <utility>

#include <gtest/gtest.h>

namespace muster::coordinator {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;

constexpr auto kNone = LossCause::kNone;

// Feeds a ledger with the events of one job. Times are in seconds.
class LedgerTest : public testing::Test {
 protected:
  Instant at(double second) const { return Instant(Duration(static_cast<int64_t>(second * 1e9))); }

  // Observes rank 0's page at `second`: `step` steps completed, of which this attempt has made
  // `made`.
  void observe(double second, Phase phase, double phase_start, int64_t step, uint64_t made,
               double stall = 0) {
    ledger_.observe({.is_rank_0 = true,
                     .phase = phase,
                     .phase_start = at(phase_start),
                     .last_progress = at(second),
                     .step = step,
                     .steps_made = made,
                     .steps_seconds = static_cast<double>(made),
                     .stall_seconds = stall},
                    at(second));
  }
  double lost(TimeClass what, LossCause cause, double now) const {
    return to_seconds(table_of(ledger_.account(at(now), 0)).at(what, cause));
  }
  LossTable table(double now) const { return table_of(ledger_.account(at(now), 0)); }

  // Starts at 10, is up at 11, trains from 14 on with one step per second: 100 steps at 114.
  void train_100_steps() {
    ledger_.started(at(10));
    ledger_.running(false, at(11));
    observe(12, Phase::kLoad, 11, -1, 0);
    observe(16, Phase::kStep, 15, 2, 2);
    observe(114, Phase::kStep, 113, 100, 100);
  }

  // Returns the newest checkpoint: its number of steps, and when it was reported.
  std::pair<int64_t, int64_t> newest() const {
    const Account account = ledger_.account(at(0), 0);
    return {account.checkpoint_step, account.checkpoint_unix_ns};
  }

  Ledger ledger_{Account{}, Instant{}};
};

// The fault that was reported: after a rollback all time until the next new step was productive.
TEST_F(LedgerTest, StepsAfterARollbackAreComputedAgain) {
  train_100_steps();
  const double before = to_seconds(table(114).productive());
  observe(116, Phase::kStep, 115, 61, 102);  // back to 60, and a further step
  observe(154, Phase::kStep, 153, 99, 140);
  observe(155, Phase::kStep, 154, 100, 141);
  EXPECT_DOUBLE_EQ(lost(TimeClass::kRecomputing, kNone, 155), 41);
  EXPECT_DOUBLE_EQ(to_seconds(table(155).productive()), before);
  observe(165, Phase::kStep, 164, 110, 151);
  EXPECT_DOUBLE_EQ(to_seconds(table(165).productive()), before + 10);
  EXPECT_EQ(ledger_.best_step(), 110);
}

// Heartbeats of other workers may be newer than that of rank 0's.
TEST_F(LedgerTest, APageOfRankZeroThatIsBehindAnotherRankIsNoRollback) {
  train_100_steps();
  ledger_.observe({.is_rank_0 = false,
                   .phase = Phase::kStep,
                   .phase_start = at(119),
                   .last_progress = at(120),
                   .step = 106,
                   .steps_made = 106,
                   .steps_seconds = 106,
                   .stall_seconds = 0},
                  at(120));
  observe(121, Phase::kStep, 117, 104, 104);
  observe(124, Phase::kStep, 123, 110, 110);
  EXPECT_DOUBLE_EQ(lost(TimeClass::kRecomputing, kNone, 124), 0);
  EXPECT_EQ(ledger_.best_step(), 110);
}

TEST_F(LedgerTest, ACheckpointIsNewWhenItIsSavedAndNotWhenItIsRestored) {
  using Newest = std::pair<int64_t, int64_t>;
  ledger_.started(at(1));
  ledger_.observe_checkpoint(true, -1, 0, 5);
  EXPECT_EQ(newest(), Newest(-1, 0));
  ledger_.observe_checkpoint(true, 100, 1, 10);
  ledger_.observe_checkpoint(false, 100, 0, 11);
  ledger_.observe_checkpoint(true, 100, 1, 12);
  EXPECT_EQ(newest(), Newest(100, 10));
  ledger_ = Ledger(ledger_.account(at(2), 0), at(2));
  ledger_.observe_checkpoint(true, 100, 1, 20);
  EXPECT_EQ(newest(), Newest(100, 10))
      << "the same checkpoint, reported to a restarted coordinator";
  ledger_.started(at(3));
  ledger_.observe_checkpoint(true, -1, 0, 29);
  ledger_.observe_checkpoint(false, 50, 0, 30);
  ledger_.observe_checkpoint(true, 50, 0, 30);
  EXPECT_EQ(newest(), Newest(50, 10)) << "the job resumed from an older checkpoint";
  ledger_.observe_checkpoint(true, 60, 1, 40);
  EXPECT_EQ(newest(), Newest(60, 40)) << "a new checkpoint with fewer steps than an earlier one";
  ledger_.observe_checkpoint(false, 70, 0, 50);
  ledger_.observe_checkpoint(true, 60, 1, 51);
  EXPECT_EQ(newest(), Newest(70, 50)) << "rank 0 reports the checkpoint last";
  ledger_.observe_checkpoint(true, 70, 2, 52);
  ledger_.observe_checkpoint(true, 65, 2, 53);
  EXPECT_EQ(newest(), Newest(70, 52));
}

TEST_F(LedgerTest, AnAttemptWithoutAReportedRestoreHasSaved) {
  ledger_.started(at(1));
  ledger_.observe_checkpoint(true, 100, 0, 10);
  ledger_.started(at(2));
  ledger_.observe_checkpoint(true, 60, 1, 40);
  EXPECT_EQ(newest(), (std::pair<int64_t, int64_t>(60, 40)));
}

TEST_F(LedgerTest, TheFirstStartIsALossWithoutACause) {
  train_100_steps();
  EXPECT_DOUBLE_EQ(to_seconds(ledger_.account(at(114), 0).queued), 10);
  EXPECT_DOUBLE_EQ(lost(TimeClass::kStarting, kNone, 114), 1);
  EXPECT_DOUBLE_EQ(lost(TimeClass::kLoading, kNone, 114), 3);
  EXPECT_DOUBLE_EQ(to_seconds(table(114).productive()), 100);
  EXPECT_DOUBLE_EQ(to_seconds(table(114).wall()), 104);
  EXPECT_DOUBLE_EQ(table(114).ratio(), 100.0 / 104);
}

TEST_F(LedgerTest, AHangIsLostUntilNewStepsAreMade) {
  constexpr auto kHang = cause_of(IncidentKind::kHang);
  train_100_steps();
  ledger_.fault(IncidentKind::kHang, at(114.5), at(118));
  ledger_.gone(at(119));
  ledger_.started(at(121));
  ledger_.running(false, at(122));
  observe(124.5, Phase::kStep, 124, 90, 0);    // the step of the checkpoint
  observe(136, Phase::kStep, 135.5, 102, 12);  // ten steps repeated, and two new ones
  EXPECT_DOUBLE_EQ(lost(TimeClass::kStandingStill, kHang, 136), 3.5);
  EXPECT_DOUBLE_EQ(lost(TimeClass::kStopping, kHang, 136), 1);
  EXPECT_DOUBLE_EQ(lost(TimeClass::kWaiting, kHang, 136), 2);
  EXPECT_DOUBLE_EQ(lost(TimeClass::kStarting, kHang, 136), 1);
  EXPECT_DOUBLE_EQ(lost(TimeClass::kLoading, kHang, 136), 2);
  EXPECT_DOUBLE_EQ(lost(TimeClass::kRecomputing, kHang, 136), 0.5 + 10);
  EXPECT_DOUBLE_EQ(to_seconds(table(136).productive()), 102);
  observe(137, Phase::kCheckpointSave, 136, 102, 12);
  EXPECT_DOUBLE_EQ(lost(TimeClass::kSaving, kNone, 138), 2);  // no longer caused by the fault
}

TEST_F(LedgerTest, StallsThatNoHeartbeatHasSeenCountOnce) {
  train_100_steps();
  observe(124, Phase::kStep, 123, 107, 107, 3);
  EXPECT_DOUBLE_EQ(lost(TimeClass::kSaving, kNone, 124), 3);
  EXPECT_DOUBLE_EQ(to_seconds(table(124).productive()), 107);
  observe(126, Phase::kCheckpointSave, 125, 108, 108, 3);
  observe(128, Phase::kStep, 127, 109, 109, 5);  // the two seconds that a page has shown
  EXPECT_DOUBLE_EQ(lost(TimeClass::kSaving, kNone, 128), 5);
}

TEST_F(LedgerTest, EvaluationIsNoProgress) {
  train_100_steps();
  observe(118, Phase::kEval, 114, 100, 100);
  observe(120, Phase::kStep, 119, 101, 101);
  EXPECT_DOUBLE_EQ(lost(TimeClass::kEvaluating, kNone, 120), 5);
}

TEST_F(LedgerTest, AFaultWhileItLoadsIsALossOfTheFaultBefore) {
  constexpr auto kDied = cause_of(IncidentKind::kRankDied);
  train_100_steps();
  ledger_.fault(IncidentKind::kRankDied, at(114), at(114));
  ledger_.gone(at(115));
  ledger_.started(at(115));
  ledger_.running(false, at(116));
  observe(120, Phase::kLoad, 116, -1, 0);
  ledger_.fault(IncidentKind::kOutOfMemory, at(116), at(121));
  ledger_.gone(at(122));
  EXPECT_DOUBLE_EQ(lost(TimeClass::kLoading, kDied, 122), 5);
  EXPECT_DOUBLE_EQ(lost(TimeClass::kStopping, cause_of(IncidentKind::kOutOfMemory), 122), 1);
  EXPECT_DOUBLE_EQ(lost(TimeClass::kStandingStill, cause_of(IncidentKind::kOutOfMemory), 122), 0);
}

TEST_F(LedgerTest, APreemptedRankCompletesItsStep) {
  train_100_steps();
  ledger_.stopping(LossCause::kPreempted, at(114.5));
  observe(115, Phase::kStep, 114.9, 101, 101);
  ledger_.gone(at(118));
  EXPECT_DOUBLE_EQ(to_seconds(table(118).productive()), 101);
  EXPECT_DOUBLE_EQ(lost(TimeClass::kStopping, LossCause::kPreempted, 118), 3);
}

TEST_F(LedgerTest, AProgramWithoutReportsIsProductiveWhileItRuns) {
  ledger_.started(at(0));
  ledger_.running(true, at(1));
  observe(1000, Phase::kInit, 1, -1, 0);
  EXPECT_DOUBLE_EQ(to_seconds(ledger_.account(at(1000), 0).settled.productive()), 999);
  ledger_.fault(IncidentKind::kRankDied, at(1001), at(1001));
  ledger_.gone(at(1002));
  EXPECT_DOUBLE_EQ(to_seconds(table(1002).productive()), 1000);
}

TEST_F(LedgerTest, AProgramThatSpeaksLateHasLoadedUntilThen) {
  ledger_.started(at(0));
  ledger_.running(true, at(1));
  observe(100, Phase::kInit, 1, -1, 0);
  observe(110, Phase::kInit, 1, 5, 5);  // steps of five seconds, without a phase
  EXPECT_DOUBLE_EQ(lost(TimeClass::kLoading, kNone, 110), 104);
  EXPECT_DOUBLE_EQ(to_seconds(table(110).productive()), 5);
}

TEST_F(LedgerTest, ARestartedCoordinatorReceivesTheStepsMadeMeanwhile) {
  train_100_steps();
  constexpr int64_t kStored = 1'700'000'000'000'000'000;
  Account stored = ledger_.account(at(120), kStored);
  // Restores on another machine with another monotonic clock, two minutes later.
  ledger_ = Ledger(stored, at(5));
  ledger_.bridge(at(5), kStored + 120'000'000'000);
  observe(6, Phase::kStep, 5.5, 220, 220);
  EXPECT_DOUBLE_EQ(to_seconds(table(6).productive()), 220 + 7);
  EXPECT_DOUBLE_EQ(to_seconds(table(6).wall()), 4 + 6 + 100 + 121);
}

// All ranks were killed together with the coordinator, so no page reports the steps since.
TEST_F(LedgerTest, AnOutageWithoutReportsIsAStandstill) {
  constexpr int64_t kStored = 1'700'000'000'000'000'000;
  constexpr double kAway = 8 * 3600;
  for (const bool silent : {false, true}) {
    ledger_ = Ledger(Account{}, Instant{});
    if (silent) {
      ledger_.started(at(10));
      ledger_.running(true, at(11));
    } else {
      train_100_steps();
    }
    const double productive = to_seconds(table(120).productive());
    ledger_ = Ledger(ledger_.account(at(120), kStored), at(5));
    ledger_.bridge(at(5), kStored + static_cast<int64_t>(kAway * 1e9));
    ledger_.fault(IncidentKind::kWorkerLost, at(5), at(15));
    EXPECT_LE(to_seconds(table(15).productive()), productive) << silent;
    EXPECT_DOUBLE_EQ(lost(TimeClass::kStandingStill, cause_of(IncidentKind::kWorkerLost), 15),
                     kAway + 10)
        << silent;
  }
}

TEST_F(LedgerTest, AClockThatWasSetBackIsNoTime) {
  train_100_steps();
  const Account stored = ledger_.account(at(120), 1'700'000'000'000'000'000);
  ledger_ = Ledger(stored, at(5));
  ledger_.bridge(at(5), 1'600'000'000'000'000'000);
  EXPECT_DOUBLE_EQ(to_seconds(table(5).wall()), 110);
}

// Random input in random order.
TEST(Ledger, ClassesAddUpToTheWallTime) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    std::mt19937_64 random(seed);
    const auto below = [&](uint64_t n) { return random() % n; };
    Instant now = instant_from_ns(static_cast<int64_t>(below(1'000'000'000'000)));
    Ledger ledger(Account{}, now);
    Duration wall{};
    bool started = false;
    uint64_t made = 0;
    int64_t base = 0, unix_ns = 1'700'000'000'000'000'000;
    for (int iteration = 0; iteration < 200; ++iteration) {
      const Duration passed(static_cast<int64_t>(below(20'000'000'000)));
      now += passed;
      unix_ns += passed.count();
      if (started) wall += passed;
      const auto some_time_ago = [&] {
        return now - Duration(static_cast<int64_t>(below(30'000'000'000)));
      };
      switch (below(started ? 9 : 1)) {
        case 0:
          ledger.started(now);
          started = true;
          base = static_cast<int64_t>(below(100));
          made = 0;
          break;
        case 1:
          ledger.running(below(2) == 0, now);
          break;
        case 2:
          ledger.fault(static_cast<IncidentKind>(below(kIncidentKindNames.size())), some_time_ago(),
                       now);
          break;
        case 3:
          ledger.gone(now);
          break;
        case 4:
          ledger.stopping(below(2) == 0 ? LossCause::kNone : LossCause::kPreempted, now);
          break;
        case 5: {  // the coordinator is away for a while
          const Account stored = ledger.account(now, unix_ns);
          const auto away = static_cast<int64_t>(below(100'000'000'000));
          unix_ns += away;
          wall += Duration(away);
          now = instant_from_ns(static_cast<int64_t>(below(1'000'000'000'000)));
          ledger = Ledger(stored, now);
          ledger.bridge(now, unix_ns);
          break;
        }
        default:
          made += below(4);
          ledger.observe({.is_rank_0 = below(3) == 0,
                          .phase = static_cast<Phase>(below(kPhaseNames.size())),
                          .phase_start = some_time_ago(),
                          .last_progress = some_time_ago(),
                          .step = base + static_cast<int64_t>(made),
                          .steps_made = made,
                          .steps_seconds = static_cast<double>(below(40)),
                          .stall_seconds = static_cast<double>(below(1000)) / 10},
                         now);
      }
      const LossTable table = table_of(ledger.account(now, unix_ns));
      ASSERT_EQ(table.wall(), wall) << "seed " << seed << ", iteration " << iteration;
      for (const auto& row : table.time)
        for (const Duration part : row) ASSERT_GE(part, Duration::zero()) << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace muster::coordinator
