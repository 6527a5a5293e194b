#include "coordinator/shell/logs/log_times.h"

#include <fstream>

#include <gtest/gtest.h>

#include "tests/unit/temp_folder.h"

namespace muster::coordinator {
namespace {

using Times = std::vector<LogTime>;

class LogTimesTest : public testing::Test {
 protected:
  void add(uint64_t offset, int64_t unix_ns) { add_log_time(path_, end_, {offset, unix_ns}); }
  Times from(uint64_t offset, size_t count = 100) { return read_log_times(path_, offset, count); }

  TempFolder folder_;
  const std::string path_ = folder_.file("times");
  LogTimesEnd end_;
};

TEST_F(LogTimesTest, ReadsFromTheRecordThatCoversAnOffset) {
  EXPECT_EQ(from(0), Times());
  for (uint64_t i = 0; i < 10; ++i) add(1000 * i, static_cast<int64_t>(5 + i));
  EXPECT_EQ(from(0, 2), (Times{{0, 5}, {1000, 6}}));
  EXPECT_EQ(from(2999, 1), (Times{{2000, 7}}));
  EXPECT_EQ(from(3000, 1), (Times{{3000, 8}}));
  EXPECT_EQ(from(1'000'000), (Times{{9000, 14}}));
}

TEST_F(LogTimesTest, NeverGoBack) {
  add(0, 50);
  add(0, 60);
  add(7, 40);  // the clock was set back
  EXPECT_EQ(from(0), (Times{{0, 50}, {7, 50}}));
}

TEST_F(LogTimesTest, TakeNoMoreThanTheirPart) {
  constexpr uint64_t kBytes = 300'000;
  for (uint64_t offset = 0; offset < kBytes; offset += 10)
    add(offset, static_cast<int64_t>(offset));
  const Times times = from(0, 1'000'000);
  EXPECT_LE(times.size(), kLogTimesFree + kBytes / kLogBytesPerTime);
  EXPECT_GE(times.size(), kBytes / kLogBytesPerTime);
  EXPECT_EQ(times[1000], (LogTime{10'000, 10'000})) << "short logs are timed exactly";
  EXPECT_GT(times.back().offset, kBytes - 2 * kLogBytesPerTime);
}

TEST_F(LogTimesTest, ContinueAfterARestartAndAHalfWrittenRecord) {
  add(0, 1);
  add(500, 2);
  std::ofstream(path_, std::ios::app) << "half";
  end_ = {};
  add(500, 3);
  add(1000, 4);
  EXPECT_EQ(from(0), (Times{{0, 1}, {500, 2}, {1000, 4}}));
}

}  // namespace
}  // namespace muster::coordinator
