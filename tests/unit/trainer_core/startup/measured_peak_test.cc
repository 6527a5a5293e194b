#include "trainer_core/startup/measured_peak.h"

#include <atomic>
#include <fstream>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/temp_folder.h"

namespace muster::trainer {
namespace {

// Returns the rounds in order, then the last one again.
struct Rounds {
  std::vector<double> tflops;
  std::atomic<int> measured{0};

  PeakRound operator()() {
    const auto i = static_cast<size_t>(measured++);
    return {tflops[std::min(i, tflops.size() - 1)], ""};
  }
};

TEST(MeasuredPeak, IsMeasuredOnceAndKept) {
  const TempFolder folder;
  const std::string path = folder.file("cache/muster/gemm-peaks.json");
  Rounds first{{1.5}};
  EXPECT_EQ(MeasuredPeak(path, "a").stored(), 0);
  EXPECT_EQ(MeasuredPeak(path, "a").get(std::ref(first)), 1.5);
  Rounds busy{{0.3}};  // the next attempt, on a busy machine
  EXPECT_EQ(MeasuredPeak(path, "a").get(std::ref(busy)), 1.5);
  EXPECT_EQ(busy.measured, 0);
  EXPECT_EQ(MeasuredPeak(path, "a").stored(), 1.5);
  EXPECT_EQ(MeasuredPeak(path, "b").get(std::ref(busy)), 0.3) << "another device";
}

TEST(MeasuredPeak, RepeatsDisturbedRounds) {
  const TempFolder folder;
  Rounds rounds{{0.4, 0.9, 0.6, 1.0, 0.99, 5}};
  EXPECT_EQ(MeasuredPeak(folder.file("peaks.json"), "a").get(std::ref(rounds)), 1.0);
  EXPECT_EQ(rounds.measured, 5) << "two rounds agree";
}

TEST(MeasuredPeak, RejectsRoundsThatNoneConfirms) {
  const TempFolder folder;
  const std::string path = folder.file("peaks.json");
  Rounds noisy{{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096}};
  MeasuredPeak peak(path, "a");
  EXPECT_EQ(peak.get(std::ref(noisy)), 0);
  EXPECT_EQ(noisy.measured, 12) << "bounded";
  EXPECT_EQ(peak.why_unknown(), "no two of 12 measurements agree within 5%");
  EXPECT_EQ(MeasuredPeak(path, "a").stored(), 0) << "nothing is stored";
  Rounds calm{{2.0}};
  EXPECT_EQ(MeasuredPeak(path, "a").get(std::ref(calm)), 2.0) << "a later run measures again";
}

// A machine on which other processes use the CPUs all the time gives equal rounds that are wrong.
TEST(MeasuredPeak, RoundsThatAgreeOnABusyMachineConfirmNothing) {
  const TempFolder folder;
  const std::string path = folder.file("peaks.json");
  MeasuredPeak busy(path, "a");
  EXPECT_EQ(busy.get([] { return PeakRound{0.5, "its threads waited"}; }), 0);
  EXPECT_EQ(busy.why_unknown(), "the measurements were disturbed: its threads waited");
  EXPECT_EQ(MeasuredPeak(path, "a").stored(), 0);
  // The load ends in the middle, for a moment.
  std::vector<PeakRound> rounds = {{0.5, "x"}, {0.5, "x"}, {1, ""}, {0.5, "x"}, {0.99, ""}};
  size_t next = 0;
  MeasuredPeak later(path, "a");
  EXPECT_EQ(later.get([&] { return rounds.at(next++); }), 1);
  EXPECT_EQ(later.why_unknown(), "");
}

TEST(MeasuredPeak, NeedsNoFile) {
  Rounds rounds{{1.0}};
  MeasuredPeak peak("", "a");
  EXPECT_EQ(peak.get(std::ref(rounds)), 1.0);
  EXPECT_EQ(peak.get(std::ref(rounds)), 1.0);
  EXPECT_EQ(rounds.measured, 2) << "one measurement";
  EXPECT_EQ(MeasuredPeak("/proc/no/peaks.json", "a").get(std::ref(rounds)), 1.0);
  const TempFolder folder;
  const std::string path = folder.file("peaks.json");
  std::ofstream(path) << "{ torn";
  EXPECT_EQ(MeasuredPeak(path, "a").get(std::ref(rounds)), 1.0);
  EXPECT_EQ(MeasuredPeak(path, "a").stored(), 1.0) << "a damaged file is replaced";
}

TEST(MeasuredPeak, OnlyOneRankMeasures) {
  const TempFolder folder;
  Rounds rounds{{1.0, 1.0}};
  std::vector<std::thread> ranks;
  for (int i = 0; i < 4; ++i)
    ranks.emplace_back([&] {
      EXPECT_EQ(MeasuredPeak(folder.file("peaks.json"), "a").get(std::ref(rounds)), 1.0);
    });
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(rounds.measured, 2);
}

TEST(PeakKey, NamesTheMachineTheDeviceTheThreadsAndTheType) {
  const std::string key = peak_key(*cpu_backend(3), DType::kBf16);
  EXPECT_TRUE(key.ends_with("|3 threads|bfloat16")) << key;
  EXPECT_NE(key, peak_key(*cpu_backend(2), DType::kBf16));
  EXPECT_NE(key, peak_key(*cpu_backend(3), DType::kF32));
  // A CPU has no TF32.
  EXPECT_EQ(peak_key(*cpu_backend(3), DType::kF32, /*tf32=*/true),
            peak_key(*cpu_backend(3), DType::kF32));
}

}  // namespace
}  // namespace muster::trainer
