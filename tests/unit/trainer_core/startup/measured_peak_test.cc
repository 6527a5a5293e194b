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

  double operator()() {
    const auto i = static_cast<size_t>(measured++);
    return tflops[std::min(i, tflops.size() - 1)];
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
  Rounds noisy{{0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4}};
  EXPECT_EQ(MeasuredPeak(path, "a").get(std::ref(noisy)), 0);
  EXPECT_EQ(noisy.measured, 6) << "bounded";
  EXPECT_EQ(MeasuredPeak(path, "a").stored(), 0) << "nothing is stored";
  Rounds calm{{2.0}};
  EXPECT_EQ(MeasuredPeak(path, "a").get(std::ref(calm)), 2.0) << "a later run measures again";
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
