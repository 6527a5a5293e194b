#include "coordinator/core/hang/stragglers.h"

#include <algorithm>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace muster::coordinator {
namespace {

// A job whose ranks compute, wait for data and wait for each other. Sampled after each step or
// after several.
class SampledJob {
 public:
  explicit SampledJob(size_t ranks)
      : stragglers(ranks), unsampled(ranks), own(ranks, 0.4), data(ranks, 0.01), pages(ranks) {}

  void step(int count = 1) {
    for (int i = 0; i < count; ++i) {
      std::vector<double> busy(own.size());
      for (size_t r = 0; r < own.size(); ++r) {
        const double noise = 1 + 0.02 * (static_cast<double>(random() % 1'000) / 500 - 1);
        busy[r] = own[r] * noise + data[r];
      }
      const double longest = *std::max_element(busy.begin(), busy.end()) + 0.05;
      for (size_t r = 0; r < own.size(); ++r) {
        ++pages[r].steps;
        pages[r].seconds += longest;
        if (reports_waits) {
          pages[r].collective_wait += longest - busy[r];
          pages[r].data_wait += data[r];
        } else {
          sample_main_thread(r, busy[r] / longest, longest);
        }
      }
      now += std::chrono::duration_cast<Duration>(std::chrono::duration<double>(longest));
      ++steps;
    }
    for (size_t r = 0; r < own.size(); ++r) stragglers.observe(r, pages[r]);
    if (!stragglers.sample_is_due()) return;
    for (const Stragglers::Change& change : stragglers.evaluate(now)) {
      changes.push_back(change);
      changed_at.push_back(steps);
    }
  }

  // Samples a main thread four times a second, which waits for its peers by sleeping.
  void sample_main_thread(size_t rank, double awake_share, double seconds) {
    ThreadSamples& samples = pages[rank].main_thread;
    for (unsampled[rank] += seconds; unsampled[rank] >= 0.25; unsampled[rank] -= 0.25) {
      ++samples.count;
      if (static_cast<double>(random() % 1'000) / 1'000 < awake_share) ++samples.awake;
    }
  }

  Stragglers stragglers;
  bool reports_waits = true;
  std::vector<double> unsampled;  // seconds since the newest sample
  std::vector<double> own, data;
  std::vector<Stragglers::Sample> pages;
  std::mt19937_64 random{3};
  Instant now{};
  int steps = 0;
  std::vector<Stragglers::Change> changes;
  std::vector<int> changed_at;
};

class StragglersOf : public ::testing::TestWithParam<size_t> {};

TEST_P(StragglersOf, ASlowRankIsNamedWithinTwentyStepsAndUntilItIsFast) {
  SampledJob job(GetParam());
  for (int i = 0; i < 60; ++i) job.step();
  EXPECT_TRUE(job.changes.empty()) << "no rank was slow";
  const size_t slow = GetParam() / 2;
  job.own[slow] *= 1.5;
  for (int i = 0; i < 40; ++i) job.step();
  ASSERT_EQ(job.changes.size(), 1U);
  EXPECT_EQ(job.changes[0].rank, slow);
  EXPECT_EQ(job.changes[0].kind, SlowKind::kCompute);
  EXPECT_NEAR(job.changes[0].seconds, 0.6, 0.03);
  EXPECT_NEAR(job.changes[0].median, 0.4, 0.02);
  EXPECT_LE(job.changed_at[0], 60 + 24);
  job.own[slow] /= 1.5;
  for (int i = 0; i < 30; ++i) job.step();
  ASSERT_EQ(job.changes.size(), 2U);
  EXPECT_EQ(job.changes[1].rank, slow);
  EXPECT_EQ(job.changes[1].kind, SlowKind::kNone);
}

INSTANTIATE_TEST_SUITE_P(Ranks, StragglersOf, ::testing::Values(2, 3, 4, 8, 64));

TEST(Stragglers, ASlowLoaderIsDistinguishedFromASlowComputation) {
  SampledJob job(8);
  for (int i = 0; i < 20; ++i) job.step();
  job.data[5] = 0.4;
  for (int i = 0; i < 40; ++i) job.step();
  ASSERT_EQ(job.changes.size(), 1U);
  EXPECT_EQ(job.changes[0].rank, 5U);
  EXPECT_EQ(job.changes[0].kind, SlowKind::kData);
}

class StragglersOfSilentRanks : public ::testing::TestWithParam<size_t> {};

TEST_P(StragglersOfSilentRanks, ARankThatHardlyEverSleepsIsNamedByItsSamples) {
  SampledJob job(GetParam());
  job.reports_waits = false;
  for (int i = 0; i < 2'000; ++i) job.step();
  EXPECT_TRUE(job.changes.empty()) << "no rank was slow";
  const size_t slow = GetParam() / 2;
  job.own[slow] *= 2;
  for (int i = 0; i < 2'000; ++i) job.step();
  ASSERT_EQ(job.changes.size(), 1U);
  EXPECT_EQ(job.changes[0].rank, slow);
  EXPECT_EQ(job.changes[0].kind, SlowKind::kCompute);
  EXPECT_NEAR(job.changes[0].seconds, 0.8, 0.1);
  EXPECT_NEAR(job.changes[0].median, 0.4, 0.1);
  EXPECT_LE(job.changed_at[0] - 2'000, 120) << "some 90 s";
  job.own[slow] /= 2;
  for (int i = 0; i < 1'000; ++i) job.step();
  ASSERT_EQ(job.changes.size(), 2U);
  EXPECT_EQ(job.changes[1].kind, SlowKind::kNone);
}

INSTANTIATE_TEST_SUITE_P(Ranks, StragglersOfSilentRanks, ::testing::Values(2, 4, 16));

TEST(Stragglers, SamplesShowNothingWhereARankReportsWaitsOrAllPoll) {
  SampledJob polling(4);
  polling.reports_waits = false;
  polling.own[1] *= 3;
  for (int i = 0; i < 500; ++i) {
    polling.step();
    for (Stragglers::Sample& page : polling.pages) page.main_thread.awake = page.main_thread.count;
  }
  EXPECT_TRUE(polling.changes.empty()) << "main threads that poll show nothing";
  SampledJob reporting(4);
  reporting.reports_waits = false;
  reporting.pages[2].collective_wait = 1;
  reporting.own[1] *= 3;
  for (int i = 0; i < 500; ++i) reporting.step();
  EXPECT_TRUE(reporting.changes.empty());
}

TEST(Stragglers, OneBadStepIsNoTrend) {
  SampledJob job(8);
  for (int i = 0; i < 100; ++i) {
    job.own[3] = i % 10 == 0 ? 2 : 0.4;
    job.step();
  }
  EXPECT_TRUE(job.changes.empty());
}

TEST(Stragglers, IfManyAreSlowNoneIsAStraggler) {
  SampledJob job(8);
  for (size_t r = 0; r < 4; ++r) job.own[r] = 0.8;  // a stage with more layers
  for (int i = 0; i < 80; ++i) job.step();
  EXPECT_TRUE(job.changes.empty());
}

TEST(Stragglers, AJobThatIsSlowTogetherHasNoStraggler) {
  SampledJob job(8);
  for (int i = 0; i < 20; ++i) job.step();
  for (double& own : job.own) own *= 3;
  for (int i = 0; i < 40; ++i) job.step();
  EXPECT_TRUE(job.changes.empty());
}

TEST(Stragglers, StepsShorterThanHeartbeatsAreSeenManyAtATime) {
  SampledJob job(4);
  std::fill(job.own.begin(), job.own.end(), 0.004);
  std::fill(job.data.begin(), job.data.end(), 0.0);
  for (int i = 0; i < 20; ++i) job.step(40);
  EXPECT_TRUE(job.changes.empty());
  job.own[1] = 0.1;  // in addition to 0.05 for messages
  for (int i = 0; i < 20; ++i) job.step(10);
  ASSERT_EQ(job.changes.size(), 1U);
  EXPECT_EQ(job.changes[0].rank, 1U);
}

TEST(Stragglers, NoRankWaitsForAnEndedOne) {
  SampledJob job(3);
  job.stragglers.forget(2);
  for (int i = 0; i < 20; ++i) job.step();
  job.own[0] = 0.8;
  for (int i = 0; i < 40; ++i) job.step();
  ASSERT_EQ(job.changes.size(), 1U);
  EXPECT_EQ(job.changes[0].rank, 0U);
}

}  // namespace
}  // namespace muster::coordinator
