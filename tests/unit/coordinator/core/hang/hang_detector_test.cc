#include "coordinator/core/hang/hang_detector.h"

#include <cmath>
#include <random>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace muster::coordinator {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

// Ranks whose pages are sampled four times per second.
class HangDetectorTest : public ::testing::Test {
 protected:
  struct Rank {
    HangDetector::Sample page;
  };

  explicit HangDetectorTest(size_t count = 4) : ranks(count), detector(HangBudgets{}, count, now) {
    for (size_t i = 0; i < ranks.size(); ++i) enter(i, Phase::kStep);
  }

  void enter(size_t rank, Phase phase) {
    ranks[rank].page.phase = phase;
    ranks[rank].page.phase_start = ranks[rank].page.last_progress = now;
    sample();
  }
  void sample() {
    for (size_t i = 0; i < ranks.size(); ++i) detector.observe(i, ranks[i].page, now);
  }
  // A step with constant visible progress.
  void step(Duration time) {
    for (Duration done{}; done < time;) {
      const Duration part = std::min<Duration>(milliseconds(250), time - done);
      now += part;
      done += part;
      for (Rank& rank : ranks) rank.page.last_progress = now;
      if (done < time) sample();
      EXPECT_GT(detector.due(), now);
    }
    complete(time);
  }
  // A step of one long computation, which shows no progress before its end.
  void silent_step(Duration time) {
    now += time;
    EXPECT_GT(detector.due(), now) << "a false alarm: " << detector.reason(now);
    complete(time);
  }
  void complete(Duration time) {
    for (Rank& rank : ranks) {
      HangDetector::Sample& page = rank.page;
      page.step = std::max<int64_t>(page.step, 0) + 1;
      page.step_seconds = to_seconds(time);
      ++page.steps;
      page.seconds += to_seconds(time);
      page.last_progress = now;
    }
    sample();
  }

  Instant now = instant_from_ns(1'000'000'000'000);
  std::vector<Rank> ranks;
  HangDetector detector;
};

// A user program.
class SilentHangDetector : public ::testing::Test {
 protected:
  HangDetector::Sample page(Phase phase, uint64_t steps = 0) const {
    HangDetector::Sample sample;
    sample.phase = phase;
    sample.phase_start = sample.last_progress = now;
    sample.steps = steps;
    sample.step = steps == 0 ? -1 : static_cast<int64_t>(steps);
    sample.step_seconds = 0.5;
    sample.seconds = 0.5 * static_cast<double>(steps);
    return sample;
  }

  Instant now = Instant(seconds(1000));
  HangDetector detector{HangBudgets{}, 2, now, HangDetector::PhaseReports::kLaterOrNever};
};

TEST_F(SilentHangDetector, ASilentProgramIsNeverSuspicious) {
  EXPECT_TRUE(detector.is_silent());
  EXPECT_EQ(detector.due(), HangDetector::kNever);
  for (int i = 0; i < 100; ++i) {
    now += minutes(60);
    detector.observe(0, page(Phase::kInit), now);  // collectives only, or no page at all
    detector.correct(1, Phase::kInit, seconds(9), -1, now);
    detector.excuse(seconds(1));
  }
  EXPECT_EQ(detector.due(), HangDetector::kNever);
  detector.forget(0);
  EXPECT_EQ(detector.due(), HangDetector::kNever);
  detector.forget(1);
  EXPECT_FALSE(detector.is_silent());
}

TEST_F(SilentHangDetector, FromItsFirstPhaseOnItIsWatched) {
  now += minutes(60);
  detector.observe(0, page(Phase::kLoad), now);
  EXPECT_FALSE(detector.is_silent());
  EXPECT_EQ(detector.due(), now + HangBudgets{}.load)
      << "the budget of the phase begins with the phase";
  uint64_t steps = 0;
  for (; steps < 10; ++steps) {
    now += milliseconds(500);
    detector.observe(0, page(Phase::kStep, steps), now);
    detector.observe(1, page(Phase::kInit), now);  // only rank 0 reports
  }
  now += seconds(3);
  EXPECT_LE(detector.due(), now) << "the allowance follows from its own steps";
  detector.forget(0);
  EXPECT_EQ(detector.due(), HangDetector::kNever) << "no reporting rank is left";
}

TEST_F(SilentHangDetector, StepsWithoutAPhaseCountToo) {
  detector.observe(1, page(Phase::kInit, 1), now);
  EXPECT_FALSE(detector.is_silent());
}

// The fault that was reported: a program whose counter fell from 400 to 0 was suspected until it
// had made 400 steps again.
TEST_F(HangDetectorTest, ACounterThatFallsIsARollbackAndNoStandstill) {
  for (int i = 0; i < 20; ++i) silent_step(seconds(1));
  ASSERT_EQ(detector.newest_step(), 20);
  for (Rank& rank : ranks) rank.page.step = -1;
  for (int i = 0; i < 30; ++i) silent_step(seconds(1));  // expects no suspicion
  EXPECT_EQ(detector.newest_step(), 30);
}

TEST_F(HangDetectorTest, ARankThatDoesNotRollBackIsNoSignOfProgress) {
  for (int i = 0; i < 20; ++i) silent_step(seconds(1));
  ranks[0].page.step = 0;
  ++ranks[0].page.steps;
  ranks[0].page.last_progress = now;
  sample();
  const Instant due = detector.due();
  for (int i = 0; i < 20; ++i) {
    now += milliseconds(250);
    sample();  // the others' pages still show step 20
  }
  EXPECT_EQ(detector.due(), due);
  EXPECT_LT(due, now);
}

TEST_F(HangDetectorTest, TheFirstStepsHaveABudgetAndTheOthersAreLearnedFrom) {
  EXPECT_EQ(detector.due(), now + minutes(10));
  silent_step(minutes(9));  // allocates and warms up
  silent_step(seconds(3));
  EXPECT_EQ(detector.due(), now + minutes(10)) << "two steps are not enough";
  silent_step(seconds(3));
  EXPECT_EQ(detector.due(), now + seconds(6)) << "the first step does not count";
  for (int i = 0; i < 16; ++i) silent_step(milliseconds(100));
  EXPECT_EQ(detector.due(), now + seconds(1))
      << "the floor, because long steps are no longer among the last ones";
}

TEST_F(HangDetectorTest, StepsMayGrowByAnyDegreeBelowTwo) {
  Duration time = milliseconds(700);
  for (int i = 0; i < 4; ++i) silent_step(time);
  for (int i = 0; i < 12; ++i) silent_step(time = time * 19 / 10);
}

TEST_F(HangDetectorTest, RandomStepsNeverAlarmAndAHangAlwaysDoes) {
  std::mt19937_64 random(5);
  for (int run = 0; run < 200; ++run) {
    const auto base = milliseconds(20 + random() % 3'000);
    detector = HangDetector(HangBudgets{}, ranks.size(), now);
    for (Rank& rank : ranks) rank.page = {};
    for (size_t i = 0; i < ranks.size(); ++i) enter(i, Phase::kStep);
    Duration longest{};
    for (int i = 0; i < 20; ++i) {
      const Duration time = base + base * static_cast<int64_t>(random() % 90) / 100;
      if (i > 0) longest = std::max(longest, time);
      silent_step(time);
    }
    EXPECT_LE(detector.due(), now + std::max<Duration>(seconds(1), 2 * longest));
  }
}

TEST_F(HangDetectorTest, ARankWithALargerBudgetExcusesThoseThatWaitForIt) {
  for (int i = 0; i < 5; ++i) silent_step(milliseconds(500));
  enter(0, Phase::kCheckpointSave);
  EXPECT_EQ(detector.due(), now + minutes(10));
  now += minutes(5);
  enter(0, Phase::kStep);
  EXPECT_EQ(detector.due(), now + seconds(1));
  enter(0, Phase::kCheckpointSave);
  EXPECT_EQ(detector.due(), now + minutes(15)) << "three times the longest save so far";
  detector.forget(0);
  EXPECT_EQ(detector.due(), now + seconds(1)) << "a rank that has ended gives no allowance";
}

TEST_F(HangDetectorTest, EachPhaseHasABudget) {
  const std::vector<std::pair<Phase, Duration>> budgets = {{Phase::kInit, minutes(2)},
                                                           {Phase::kRendezvous, minutes(5)},
                                                           {Phase::kLoad, minutes(30)},
                                                           {Phase::kCompile, minutes(30)},
                                                           {Phase::kEval, minutes(10)},
                                                           {Phase::kCheckpointSave, minutes(10)},
                                                           {Phase::kCheckpointRestore, minutes(10)},
                                                           {Phase::kShutdown, minutes(5)},
                                                           {static_cast<Phase>(77), minutes(30)}};
  for (int i = 0; i < 5; ++i) silent_step(milliseconds(500));
  for (const auto& [phase, budget] : budgets) {
    enter(2, phase);
    EXPECT_EQ(detector.due(), now + budget) << phase_name(phase);
  }
  EXPECT_NE(detector.reason(now).find("in phase COMPILE"), std::string::npos)
      << detector.reason(now);
}

// Rank 0 evaluates. The others enter the phase, and leave it at once.
TEST_F(HangDetectorTest, ABudgetFollowsTheLongestPhaseSoFar) {
  for (const auto& [time, budget] : {std::pair(40, 10), std::pair(5, 10), std::pair(1, 2)}) {
    for (int i = 0; i < 5; ++i) silent_step(milliseconds(500));
    for (const Phase phase : {Phase::kEval, Phase::kStep}) enter(1, phase);
    for (const size_t rank : {2U, 0U}) enter(rank, Phase::kEval);
    enter(2, Phase::kStep);
    EXPECT_EQ(detector.due(), now + minutes(budget));
    now += seconds(time);
    enter(0, Phase::kStep);
  }
}

TEST_F(HangDetectorTest, AHaltedRankNeedsNoBudget) {
  enter(0, Phase::kEval);
  const Instant evaluates = now;
  now += seconds(10);
  ranks[2].page.halted = true;
  sample();
  EXPECT_EQ(detector.due(), now + seconds(30));
  EXPECT_EQ(detector.due_by_time(), evaluates + minutes(10));
  now += seconds(30);
  EXPECT_NE(detector.reason(now).find("a rank is stopped or dead"), std::string::npos);
  ranks[2].page.halted = false;
  sample();
  EXPECT_EQ(detector.due(), evaluates + minutes(10));
  ranks[2].page.halted = true;
  sample();
  detector.forget(2);
  EXPECT_EQ(detector.due(), evaluates + minutes(10));
}

TEST_F(HangDetectorTest, ProbesAreRepeatedUntilOneProvesAHang) {
  enter(0, Phase::kEval);
  const Instant evaluates = now;
  EXPECT_EQ(detector.next_probe(), evaluates + seconds(30));
  for (const int64_t next : {60, 120, 180, 240}) {
    now = detector.next_probe();
    detector.conclude_probe(/*proves=*/false, now);
    EXPECT_EQ(detector.next_probe(), evaluates + seconds(next));
    EXPECT_GT(detector.due(), now);
  }
  detector.conclude_probe(/*proves=*/true, now);
  EXPECT_EQ(detector.due(), now);
  EXPECT_NE(detector.reason(now).find("its ranks cannot continue"), std::string::npos);
  detector.withdraw_proof(now);
  EXPECT_GT(detector.due(), now);
  detector.conclude_probe(/*proves=*/true, now);
  now += seconds(1);
  enter(0, Phase::kStep);
  EXPECT_GT(detector.due(), now) << "progress contradicts the proof";
  EXPECT_EQ(detector.next_probe(), now + seconds(30));
}

TEST_F(HangDetectorTest, RemembersTheLongestPauseBetweenSteps) {
  silent_step(seconds(30));
  for (int i = 0; i < 5; ++i) silent_step(milliseconds(500));
  EXPECT_LT(detector.longest_pause(), seconds(1)) << "the first steps are no pause";
  now += seconds(20);
  complete(seconds(20));
  for (int i = 0; i < 40; ++i) silent_step(milliseconds(500));
  EXPECT_EQ(detector.longest_pause(), seconds(20));
}

TEST_F(HangDetectorTest, WhatMovesBesideTheComputationCompletesNoStep) {
  for (int i = 0; i < 5; ++i) silent_step(milliseconds(500));
  const Instant last_step = now;
  while (detector.due() > now && now < last_step + seconds(60)) {
    now += milliseconds(250);
    ranks[1].page.last_progress = now;  // a checkpoint is being written
    sample();
  }
  EXPECT_EQ(now, last_step + milliseconds(1'500)) << detector.reason(now);
  EXPECT_NE(detector.reason(now).find("no step was completed"), std::string::npos);
}

TEST_F(HangDetectorTest, AForgivenAttemptGetsTwiceTheTimeUntilStepsAreCompleted) {
  for (int i = 0; i < 5; ++i) silent_step(seconds(1));
  const Instant last = now;
  EXPECT_TRUE(detector.double_patience());
  EXPECT_EQ(detector.due(), last + seconds(4));
  EXPECT_TRUE(detector.double_patience());
  EXPECT_EQ(detector.due(), last + seconds(8));
  while (detector.double_patience()) {
  }
  EXPECT_GE(detector.due(), last + minutes(10));
  EXPECT_LE(detector.due(), last + minutes(40))
      << "the allowance is bounded, because a loop moves forever";
  for (int i = 0; i < 12; ++i) silent_step(seconds(1));
  EXPECT_EQ(detector.due(), now + seconds(2));
}

// A restarted coordinator learns from the counters on pages.
TEST_F(HangDetectorTest, CountsTheStepsBeforeTheFirstSample) {
  for (Rank& rank : ranks) {
    rank.page.step = 1'000;
    rank.page.steps = 400;
    rank.page.seconds = 800;
    rank.page.step_seconds = 2.5;
    rank.page.last_progress = now;
  }
  sample();
  EXPECT_EQ(detector.due(), now + seconds(5));
}

// The page in the dump is older than the heartbeat that has arrived meanwhile.
TEST_F(HangDetectorTest, ADumpThatWasLongOnItsWayCorrectsNothing) {
  for (int i = 0; i < 5; ++i) silent_step(milliseconds(500));
  enter(0, Phase::kCheckpointSave);
  now += seconds(20);
  enter(0, Phase::kStep);
  now += milliseconds(300);
  detector.correct(0, Phase::kCheckpointSave, seconds(20), 5, now);
  EXPECT_LE(detector.due(), now + seconds(2));
  detector.correct(0, Phase::kCheckpointSave, milliseconds(100), 5, now);
  EXPECT_GE(detector.due(), now + seconds(599));
}

TEST_F(HangDetectorTest, AnOvertakenPageIsIgnored) {
  enter(0, Phase::kLoad);
  HangDetector::Sample old = ranks[0].page;
  for (Rank& rank : ranks) rank.page.step = 20;  // restored
  enter(0, Phase::kStep);
  const Instant due = detector.due();
  now += seconds(2);
  old.phase_start = old.last_progress = now;
  detector.observe(0, old, now);
  EXPECT_EQ(detector.due(), due);
}

// The ranks resume at the step of a checkpoint, and have made no steps themselves.
TEST_F(HangDetectorTest, AStepOfAnEarlierAttemptIsProgressOnce) {
  for (Rank& rank : ranks) rank.page.step = 20;
  sample();
  const Instant due = detector.due();
  now += seconds(5);
  sample();
  detector.correct(1, Phase::kStep, seconds(5), 20, now);
  EXPECT_EQ(detector.due(), due);
  detector.correct(1, Phase::kStep, seconds(5), 21, now);
  EXPECT_EQ(detector.due(), now + minutes(10));
}

TEST_F(HangDetectorTest, LearnsHowLongAProgramIsUsuallySilent) {
  EXPECT_EQ(detector.usual_silence(), Duration::zero());
  for (int i = 0; i < 5; ++i) silent_step(seconds(3));
  EXPECT_EQ(detector.usual_silence(), seconds(3));
  for (int i = 0; i < 16; ++i) step(seconds(3));
  EXPECT_EQ(detector.usual_silence(), milliseconds(250));
  silent_step(seconds(5));
  EXPECT_EQ(detector.usual_silence(), milliseconds(250)) << "one silent step is not usual";
  enter(0, Phase::kEval);
  EXPECT_EQ(detector.usual_silence(), Duration::zero());
}

TEST_F(HangDetectorTest, NonsenseFromPagesDoesNoHarm) {
  std::mt19937_64 random(7);
  const auto any = [&] {
    const double values[] = {0, -1, 1e300, -1e300, std::nan(""), 1e-300, 5};
    return values[random() % 7];
  };
  for (int i = 0; i < 2'000; ++i) {
    now += milliseconds(random() % 500);
    detector.observe(
        random() % 4,
        {.phase = static_cast<Phase>(random() % 12),
         .phase_start = instant_from_ns(static_cast<int64_t>(random() % 2'000) * 1'000'000'000),
         .last_progress = instant_from_ns(static_cast<int64_t>(random() % 2'000) * 1'000'000'000),
         .step = static_cast<int64_t>(random()),
         .step_seconds = any(),
         .steps = random() % 50,
         .seconds = any()},
        now);
    EXPECT_GE(detector.due(), instant_from_ns(0));
    EXPECT_LE(detector.last_progress(), now);
    EXPECT_FALSE(detector.reason(now).empty());
  }
}

}  // namespace
}  // namespace muster::coordinator
