#include "coordinator/shell/profiling/pprof_file.h"

#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "pprof/profile.pb.h"

namespace muster::coordinator {
namespace {

namespace pprof = perftools::profiles;

std::string name_of(uint64_t address) {
  if (address < 100) return "outer";
  return address < 200 ? "inner" : "";
}

std::string bytes_of(const std::vector<uint64_t>& words) {
  std::string bytes(words.size() * sizeof(uint64_t), '\0');
  std::memcpy(bytes.data(), words.data(), bytes.size());
  return bytes;
}

std::vector<std::string> names_of(const pprof::Profile& profile, const pprof::Sample& sample) {
  std::vector<std::string> names;
  for (const uint64_t location : sample.location_id()) {
    const uint64_t function =
        profile.location(static_cast<int>(location) - 1).line(0).function_id();
    const int64_t name = profile.function(static_cast<int>(function) - 1).name();
    names.push_back(profile.string_table(static_cast<int>(name)));
  }
  return names;
}

// The address after a call may be that of the next function, so a caller is named by the
// instruction before it.
TEST(PprofFile, NamesTheFunctionsOfStacks) {
  StackProfile profile;
  profile.values = {{"samples", "count"}, {"cpu", "nanoseconds"}};
  profile.period_type = {"cpu", "nanoseconds"};
  profile.period = 10'000'000;
  profile.duration = std::chrono::seconds(2);
  profile.interrupted = true;
  profile.samples = {{{100, 100}, {3, 30'000'000}}, {{250, 50}, {1, 10'000'000}}};
  pprof::Profile read;
  ASSERT_TRUE(read.ParseFromString(pprof_file(profile, name_of)));
  ASSERT_EQ(read.sample_size(), 2);
  EXPECT_EQ(names_of(read, read.sample(0)), (std::vector<std::string>{"inner", "outer"}));
  EXPECT_EQ(names_of(read, read.sample(1)), (std::vector<std::string>{"0xfa", "outer"}));
  EXPECT_EQ(read.sample(0).value(1), 30'000'000);
  EXPECT_EQ(read.string_table(0), "");
  EXPECT_EQ(read.string_table(static_cast<int>(read.sample_type(1).type())), "cpu");
  EXPECT_EQ(read.duration_nanos(), 2'000'000'000);
  EXPECT_EQ(read.function_size(), 3) << "each function once";
}

TEST(PprofFile, ReadsTheSamplesOfGperftools) {
  StackProfile profile;
  const std::string bytes = bytes_of({0, 3, 0, 10'000, 0,  // the header
                                      2, 2, 100, 50,       // two samples
                                      1, 1, 50,            // one sample
                                      0, 1, 0}) +
                            "00400000-00500000 r-xp 00000000 00:00 1 /bin/x\n";
  ASSERT_TRUE(read_cpu_samples(bytes, profile));
  EXPECT_EQ(profile.period, 10'000'000);
  ASSERT_EQ(profile.samples.size(), 2U);
  EXPECT_EQ(profile.samples[0].stack, (std::vector<uint64_t>{100, 50}));
  EXPECT_EQ(profile.samples[0].values, (std::vector<int64_t>{2, 20'000'000}));
  for (const std::string& bad : {std::string("short"), bytes.substr(0, 72),
                                 bytes_of({0, 3, 0, 10'000, 0, 1, 90, 1, 0, 1, 0})}) {
    StackProfile other;
    EXPECT_FALSE(read_cpu_samples(bad, other)) << bad.size();
  }
}

}  // namespace
}  // namespace muster::coordinator
