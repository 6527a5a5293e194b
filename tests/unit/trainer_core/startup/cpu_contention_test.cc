#include "trainer_core/startup/cpu_contention.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "tests/unit/temp_folder.h"

namespace muster::trainer {
namespace {

// Counters after a second in which two threads ran and waited.
CpuTimes after(double run, double wait, double stolen) {
  return {.run = run, .wait = wait, .stolen = stolen};
}

TEST(CpuContention, WaitingThreadsAreADisturbance) {
  EXPECT_EQ(disturbance_between({}, after(2, 0, 0)), "");
  EXPECT_EQ(disturbance_between({}, after(1.95, 0.05, 0)), "") << "wake-ups";
  EXPECT_EQ(disturbance_between({}, after(1.2, 0.8, 0)),
            "its threads waited 40% of the time for a CPU that other processes used");
  const CpuTimes long_ago = after(100, 50, 0);
  EXPECT_EQ(disturbance_between(long_ago, after(102, 50, 0)), "") << "only the difference counts";
}

TEST(CpuContention, AHostThatTakesCpusIsADisturbance) {
  EXPECT_EQ(disturbance_between({}, after(2, 0, 0.01)), "") << "a tick";
  EXPECT_EQ(disturbance_between({}, after(2, 0, 0.5)),
            "the host of this virtual machine took 25% of the CPU time");
}

TEST(CpuContention, KernelsWithoutCountersAreNoDisturbance) {
  EXPECT_EQ(disturbance_between({}, after(0, 0, 0)), "");
  const TempFolder folder;
  const CpuTimes none = read_cpu_times(folder.file("proc"));
  EXPECT_EQ(none.run, 0);
  EXPECT_EQ(none.stolen, 0);
}

TEST(CpuContention, ReadsTheCountersOfAllThreads) {
  const TempFolder folder;
  const std::filesystem::path proc = folder.file("proc");
  for (const char* thread : {"7", "8"}) {
    std::filesystem::create_directories(proc / "self/task" / thread);
    std::ofstream(proc / "self/task" / thread / "schedstat") << "1500000000 250000000 12\n";
  }
  // This process may use at least one of them.
  std::ofstream stat(proc / "stat");
  stat << "cpu  9 9 9 9 9 9 9 900 0 0\n";
  for (int cpu = 0; cpu < 1024; ++cpu) stat << "cpu" << cpu << " 1 2 3 4 5 6 7 100 0 0\n";
  stat << "intr 5\n";
  stat.close();
  const CpuTimes times = read_cpu_times(proc.string());
  EXPECT_DOUBLE_EQ(times.run, 3);
  EXPECT_DOUBLE_EQ(times.wait, 0.5);
  EXPECT_GE(times.stolen, 1) << "100 ticks of 10 ms";
  EXPECT_GT(read_cpu_times().run, 0) << "of this process";
}

}  // namespace
}  // namespace muster::trainer
