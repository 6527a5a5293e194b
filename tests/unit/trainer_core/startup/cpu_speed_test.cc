#include "trainer_core/startup/cpu_speed.h"

#include <sched.h>
#include <time.h>

#include <atomic>
#include <thread>
#include <vector>

#include <absl/cleanup/cleanup.h>
#include <gtest/gtest.h>

namespace muster::trainer {
namespace {

double thread_cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// Other threads compete with the measuring one for its only CPU.
TEST(CpuSpeed, TimeWithoutACpuDoesNotCount) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  absl::Cleanup restore = [&] { sched_setaffinity(0, sizeof(before), &before); };
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(static_cast<size_t>(sched_getcpu()), &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  std::atomic<bool> stop = false;
  std::vector<std::jthread> others;
  for (int i = 0; i < 3; ++i)
    others.emplace_back([&] {
      while (!stop) continue;
    });
  absl::Cleanup end = [&] { stop = true; };
  const double start = thread_cpu_seconds();
  const CpuSpeed speed = measure_cpu_speed();
  const double used = thread_cpu_seconds() - start;
  EXPECT_GT(speed.float32_seconds, 0);
  EXPECT_GT(speed.bfloat16_seconds, 0);
  // A minimum is at most the mean, and all measurements together are a part of the CPU time.
  constexpr int kTries = 9;
  EXPECT_LE(kTries * (speed.float32_seconds + speed.bfloat16_seconds), used);
}

}  // namespace
}  // namespace muster::trainer
