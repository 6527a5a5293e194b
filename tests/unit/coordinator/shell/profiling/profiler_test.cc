#include "coordinator/shell/profiling/profiler.h"

#include <gmock/gmock.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "pprof/profile.pb.h"

namespace muster::coordinator {

// Has a name of its own, which the heap profile must show.
[[gnu::noinline]] std::vector<std::string> hold_memory_for_a_profile() {
  std::vector<std::string> held;
  for (int i = 0; i < 20'000; ++i) held.emplace_back(1'000, 'x');
  return held;
}

namespace {

using testing::Contains;
using testing::HasSubstr;

#ifdef MUSTER_HAVE_GPERFTOOLS

TEST(Profiler, AHeapProfileHasWhatIsInUse) {
  start_heap_samples();
  // The allocator reads the setting with the next sample, which may be up to 16 MiB away.
  for (int i = 0; i < 40; ++i) std::make_unique<std::string>(size_t{1} << 20, 'x');
  const auto held = hold_memory_for_a_profile();
  const auto file = heap_profile();
  ASSERT_TRUE(file.ok()) << file.status();
  perftools::profiles::Profile profile;
  ASSERT_TRUE(profile.ParseFromString(*file));
  EXPECT_THAT(profile.string_table(), Contains(HasSubstr("hold_memory_for_a_profile")));
  int64_t bytes = 0;
  for (const auto& sample : profile.sample()) bytes += sample.value(1);
  EXPECT_GT(bytes, 10 << 20) << held.size();
}

TEST(Profiler, AStopEndsACpuProfile) {
  std::stop_source stop;
  std::thread stopper([&] { stop.request_stop(); });
  const auto file = cpu_profile(kProfileTimeMax, stop.get_token());
  stopper.join();
  EXPECT_TRUE(absl::IsCancelled(file.status())) << file.status();
}

#else

TEST(Profiler, WithoutGperftoolsTheErrorNamesThePackage) {
  start_heap_samples();
  for (const auto& file : {heap_profile(), cpu_profile(kProfileTimeMin, {})}) {
    EXPECT_TRUE(absl::IsFailedPrecondition(file.status())) << file.status();
    EXPECT_THAT(std::string(file.status().message()), HasSubstr("libgoogle-perftools-dev"));
  }
}

#endif

}  // namespace
}  // namespace muster::coordinator
