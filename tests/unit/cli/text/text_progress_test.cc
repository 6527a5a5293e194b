#include "cli/text/text_progress.h"

#include <gtest/gtest.h>

namespace muster::cli {
namespace {

using std::chrono::seconds;
using Report = trainer::TrainTokenizerProgress;

const Instant kStart = instant_from_ns(1'000'000'000);

TEST(ReadingProgress, ShowsRateAndTimeLeftUntilTheEnd) {
  const Progress half = reading_progress(50'000'000, 100'000'000, kStart, kStart + seconds(10));
  EXPECT_EQ(half.label, "reading");
  EXPECT_DOUBLE_EQ(*half.fraction, 0.5);
  EXPECT_DOUBLE_EQ(half.seconds_left, 10);
  EXPECT_EQ(half.note, "5.00MB/s");
  EXPECT_EQ(reading_progress(5, 5, kStart, kStart + seconds(1)).label, "writing");
}

TEST(TrainingProgress, OnlyTheMergingPhaseHasAnEstimate) {
  TrainingProgress progress(kStart);
  const Progress reading = progress.at({Report::Phase::kReading, 50, 100}, kStart + seconds(10));
  EXPECT_DOUBLE_EQ(*reading.fraction, 0.5);
  EXPECT_LT(reading.seconds_left, 0) << "counting and merging are to come";
  const Progress counting = progress.at({Report::Phase::kCounting, 0, 0}, kStart + seconds(20));
  EXPECT_FALSE(counting.fraction.has_value());
  EXPECT_LT(counting.seconds_left, 0);
}

TEST(TrainingProgress, TheEstimateFollowsThePaceOfTheLaterMerges) {
  TrainingProgress progress(kStart);
  Instant now = kStart + seconds(30);
  uint64_t done = 20;
  const auto at = [&] { return progress.at({Report::Phase::kMerging, done, 4'000}, now); };
  EXPECT_LT(at().seconds_left, 0) << "nothing is known yet";
  // Ten slow seconds, then ten times as fast.
  for (int i = 0; i < 10; ++i, now += seconds(1), done += 10) at();
  for (int i = 0; i < 15; ++i, now += seconds(1), done += 100) at();
  const Progress late = at();
  const double true_left = (4'000.0 - static_cast<double>(done)) / 100;
  EXPECT_NEAR(late.seconds_left, true_left, true_left / 2);
  EXPECT_EQ(late.note, "1620 of 4000 pieces");
}

}  // namespace
}  // namespace muster::cli
