#include "coordinator/shell/logs/log_store.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include "tests/unit/coordinator/shell/shell_fixture.h"

namespace muster::coordinator {
namespace {

const JobId kJob(1);
const Attempt kFirst(1);
const Rank kRank(0);
const LogWriter kWriter{WorkerName("n1"), Incarnation(7)};
const std::vector<RankPlacement> kPlacement = {{Rank(0), WorkerName("n1"), 0, Incarnation(7)},
                                               {Rank(1), WorkerName("n1"), 1, Incarnation(7)}};
constexpr uint64_t kBytesMax = 100;

// Returns whether the thread waits for something.
bool sleeps(pid_t tid) {
  std::ifstream file(absl::StrCat("/proc/self/task/", tid, "/stat"));
  std::string number, name, state;
  file >> number >> name >> state;
  return state == "S";
}

class LogStoreTest : public testing::Test {
 protected:
  LogStoreTest() { store_.set_scope(kJob, {kFirst, 2, false}, kPlacement); }

  std::string all() { return *store_.read(kJob, kFirst, kRank, 0, 10'000); }

  TempFolder folder_;
  LogStore store_{folder_.path(), kBytesMax};
};

// Workers send the output of running ranks to each leader, but not that of ended attempts.
TEST(LogsOfSeveralCoordinators, AnEndedAttemptNamesTheCoordinatorThatHasItsLog) {
  const TempFolder folder;
  LogStore store(folder.path(), kBytesMax, LogLimits{}, "b:7070");
  LogScope scope{.newest_attempt = Attempt(3),
                 .ranks = 2,
                 .leaders = {{Attempt(1), "a:7070"}, {Attempt(2), "b:7070"}}};
  store.set_scope(kJob, scope, kPlacement);
  const auto read = [&](uint32_t attempt) {
    return store.read(kJob, Attempt(attempt), kRank, 0, kBytesMax).status();
  };
  EXPECT_TRUE(absl::IsNotFound(read(1)));
  EXPECT_THAT(std::string(read(1).message()),
              testing::HasSubstr("coordinator that led when the attempt ended: a:7070;"));
  EXPECT_TRUE(read(2).ok());
  EXPECT_TRUE(read(3).ok()) << "the current attempt";
  scope.ended = true;
  scope.leaders.push_back({Attempt(3), "c:7070"});
  store.set_scope(kJob, scope, kPlacement);
  EXPECT_THAT(std::string(read(3).message()), testing::HasSubstr("c:7070"));
  LogStore single(folder.path(), kBytesMax);
  single.set_scope(kJob, scope, kPlacement);
  EXPECT_TRUE(single.read(kJob, Attempt(1), kRank, 0, kBytesMax).ok());
}

// The files are removed on the store's own thread.
bool is_removed(const std::string& folder) {
  for (int i = 0; i < 6'000 && std::filesystem::exists(folder); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return !std::filesystem::exists(folder);
}

TEST(OldLogs, AreRemovedBySizeOnceNoWorkerCanSendThem) {
  const TempFolder folder;
  LogStore store(folder.path(), 1'000, {.bytes_per_job_max = 170});
  const std::string text(100, 'x');
  for (uint32_t attempt = 1; attempt <= 6; ++attempt) {
    store.set_scope(kJob, {Attempt(attempt), 2, false}, kPlacement);
    ASSERT_EQ(*store.append(kWriter, kJob, Attempt(attempt), kRank, 0, text), text.size());
  }
  ASSERT_TRUE(is_removed(folder.file("1/1")));
  const auto gone = store.read(kJob, Attempt(1), kRank, 0, 1'000);
  EXPECT_TRUE(absl::IsNotFound(gone.status())) << gone.status();
  EXPECT_THAT(std::string(gone.status().message()),
              testing::HasSubstr("the logs of attempt 1 of job 1 were removed"));
  // The newest four attempts are still owned, and do not count.
  for (uint32_t attempt = 2; attempt <= 6; ++attempt)
    EXPECT_EQ(*store.read(kJob, Attempt(attempt), kRank, 0, 1'000), text);
  EXPECT_EQ(*store.read(kJob, Attempt(6), Rank(1), 0, 1'000), "") << "it has written nothing yet";
}

TEST(OldLogs, AreRemovedByAge) {
  const TempFolder folder;
  LogStore store(folder.path(), 1'000);
  for (uint32_t attempt = 1; attempt <= 6; ++attempt) {
    store.set_scope(kJob, {Attempt(attempt), 2, false}, kPlacement);
    ASSERT_TRUE(store.append(kWriter, kJob, Attempt(attempt), kRank, 0, "text").ok());
  }
  const auto old = std::filesystem::file_time_type::clock::now() - std::chrono::hours(24 * 91);
  for (const char* name : {"rank-0.log", "rank-0.times"}) {
    std::error_code ignored;  // there may be no times
    std::filesystem::last_write_time(folder.file(std::string("1/1/") + name), old, ignored);
  }
  store.set_scope(kJob, {Attempt(7), 2, false}, kPlacement);
  EXPECT_TRUE(is_removed(folder.file("1/1")));
  EXPECT_EQ(*store.read(kJob, Attempt(2), kRank, 0, 1'000), "text");
}

TEST_F(LogStoreTest, SkipsStoredBytes) {
  EXPECT_EQ(*store_.append(kWriter, kJob, kFirst, kRank, 0, "abcdef"), 6U);
  EXPECT_EQ(*store_.append(kWriter, kJob, kFirst, kRank, 0, "abc"), 6U);
  EXPECT_EQ(*store_.append(kWriter, kJob, kFirst, kRank, 4, "efgh"), 8U);
  EXPECT_EQ(all(), "abcdefgh");
  EXPECT_EQ(*store_.read(kJob, kFirst, kRank, 6, 1), "g");
  EXPECT_EQ(*store_.read(kJob, kFirst, kRank, 8, 10), "");
  EXPECT_EQ(*store_.read(kJob, kFirst, Rank(1), 0, 10), "");
}

TEST_F(LogStoreTest, RemembersItsEndAcrossARestart) {
  EXPECT_EQ(*store_.append(kWriter, kJob, kFirst, kRank, 0, "abcdef"), 6U);
  LogStore again(folder_.path(), kBytesMax);
  again.set_scope(kJob, {kFirst, 2, false}, kPlacement);
  EXPECT_EQ(*again.append(kWriter, kJob, kFirst, kRank, 3, "defg"), 7U);
  EXPECT_EQ(all(), "abcdefg");
}

TEST_F(LogStoreTest, RequestsMissingBytes) {
  EXPECT_EQ(*store_.append(kWriter, kJob, kFirst, kRank, 4, "ef"), 0U);
  EXPECT_EQ(*store_.append(kWriter, kJob, kFirst, kRank, 0, "ab"), 2U);
  EXPECT_EQ(*store_.append(kWriter, kJob, kFirst, kRank, 60, "cd"), 2U);
  EXPECT_EQ(all(), "ab");
  EXPECT_EQ(*store_.append(kWriter, kJob, kFirst, kRank, 2, "cdef"), 6U);
  EXPECT_EQ(all(), "abcdef");
}

TEST_F(LogStoreTest, RequestsLostBytesAfterARestart) {
  EXPECT_EQ(*store_.append(kWriter, kJob, kFirst, kRank, 0, "abcdef"), 6U);
  std::filesystem::resize_file(folder_.path() + "/1/1/rank-0.log", 3);
  LogStore again(folder_.path(), kBytesMax);
  again.set_scope(kJob, {kFirst, 2, false}, kPlacement);
  EXPECT_EQ(*again.append(kWriter, kJob, kFirst, kRank, 6, "gh"), 3U);
  EXPECT_EQ(*again.append(kWriter, kJob, kFirst, kRank, 3, "defgh"), 8U);
  EXPECT_EQ(all(), "abcdefgh");
}

// Data that could not be written is not requested again, and its place is filled once there is
// room.
TEST_F(LogStoreTest, FillsTheGapThatAFailureLeft) {
  EXPECT_EQ(*store_.append(kWriter, kJob, kFirst, kRank, 0, "ab"), 2U);
  const std::string path = folder_.path() + "/1/1/rank-0.log";
  std::filesystem::rename(path, path + ".away");
  std::filesystem::create_directory(path);  // nothing can be written here, even by root
  const std::string dropped(58, 'x');
  EXPECT_FALSE(store_.append(kWriter, kJob, kFirst, kRank, 2, dropped).ok());
  std::filesystem::remove(path);
  std::filesystem::rename(path + ".away", path);
  EXPECT_EQ(*store_.append(kWriter, kJob, kFirst, kRank, 60, "cd"), 62U);
  const std::string text = all();
  EXPECT_EQ(text.size(), 62U);
  EXPECT_EQ(text.substr(60), "cd");
  EXPECT_THAT(text, testing::HasSubstr("58 bytes of output were lost here"));
}

TEST_F(LogStoreTest, WaitsForSpaceAndLogsItOnce) {
  EXPECT_EQ(*store_.append(kWriter, kJob, kFirst, kRank, 0, "ab"), 2U);
  std::ostringstream logged;
  const auto logger = spdlog::default_logger();
  spdlog::set_default_logger(std::make_shared<spdlog::logger>(
      "test", std::make_shared<spdlog::sinks::ostream_sink_mt>(logged)));
  const std::string path = folder_.path() + "/1/1/rank-0.log";
  std::filesystem::rename(path, path + ".away");
  std::filesystem::create_symlink("/dev/full", path);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(*store_.append(kWriter, kJob, kFirst, kRank, 2, "cd"), 2U);
    EXPECT_EQ(*store_.append(kWriter, kJob, kFirst, kRank, 4, "ef"), 2U)
        << "the data after a missing part";
  }
  std::filesystem::rename(path + ".away", path);
  spdlog::set_default_logger(logger);
  const std::string text = logged.str();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
  EXPECT_EQ(*store_.append(kWriter, kJob, kFirst, kRank, 2, "cdef"), 6U);
  EXPECT_EQ(all(), "abcdef");
}

TEST_F(LogStoreTest, OnlyTheLifeThatARankWasPlacedOnWrites) {
  const Attempt second(2);
  const LogWriter other{WorkerName("n2"), Incarnation(7)};
  const LogWriter next_life{WorkerName("n1"), Incarnation(8)};
  for (const LogWriter& stranger : {other, next_life}) {
    EXPECT_EQ(store_.append(stranger, kJob, kFirst, kRank, 0, "x").status().code(),
              absl::StatusCode::kPermissionDenied);
  }
  store_.set_scope(kJob, {kFirst, 2, false}, {});  // queued again
  store_.set_scope(kJob, {second, 2, false},
                   {{Rank(0), WorkerName("n2"), 0, Incarnation(7)},
                    {Rank(1), WorkerName("n1"), 0, Incarnation(8)}});
  EXPECT_TRUE(store_.append(kWriter, kJob, kFirst, kRank, 0, "late").ok());
  EXPECT_FALSE(store_.append(kWriter, kJob, second, kRank, 0, "x").ok());
  EXPECT_TRUE(store_.append(other, kJob, second, kRank, 0, "x").ok());
  EXPECT_FALSE(store_.append(other, kJob, second, Rank(1), 0, "x").ok());
  EXPECT_TRUE(store_.append(next_life, kJob, second, Rank(1), 0, "x").ok());
  EXPECT_EQ(all(), "late");
}

TEST_F(LogStoreTest, EndsAtItsBoundAndContinuesToAccept) {
  EXPECT_EQ(*store_.append(kWriter, kJob, kFirst, kRank, 0, std::string(90, 'x')), 90U);
  EXPECT_EQ(*store_.append(kWriter, kJob, kFirst, kRank, 90, std::string(50, 'y')), 140U);
  EXPECT_EQ(*store_.append(kWriter, kJob, kFirst, kRank, 140, "z"), 141U);
  const std::string text = all();
  EXPECT_EQ(text.substr(0, 100), std::string(90, 'x') + std::string(10, 'y'));
  EXPECT_THAT(text, testing::HasSubstr("what follows is dropped"));
  EXPECT_LT(text.size(), 200U);
}

// A disk that hangs: opening a FIFO without a reader blocks.
TEST_F(LogStoreTest, ASlowDiskBlocksNoOtherCaller) {
  const std::string path = folder_.path() + "/1/1/rank-0.log";
  std::filesystem::create_directories(folder_.path() + "/1/1");
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  std::promise<pid_t> writer;
  std::thread slow([&] {
    writer.set_value(gettid());
    EXPECT_FALSE(store_.append(kWriter, kJob, kFirst, kRank, 0, "slow").ok());
  });
  const pid_t tid = writer.get_future().get();
  while (!sleeps(tid)) std::this_thread::yield();
  auto others = std::async(std::launch::async, [&] {
    EXPECT_EQ(*store_.append(kWriter, kJob, kFirst, Rank(1), 0, "quick"), 5U);
    store_.set_scope(kJob, {kFirst, 2, true}, kPlacement);
    store_.forget(kJob);
    EXPECT_FALSE(store_.scope(kJob));
  });
  EXPECT_EQ(others.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  const int reader = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  slow.join();
  close(reader);
}

TEST_F(LogStoreTest, ForgottenLogsAreRemovedAndFollowersNotified) {
  struct Follower final : LogFollower {
    void on_output(Attempt, Rank) override {}
    void on_scope(const LogScope& scope) override {
      if (!scope.ended) return;
      ++ended;
      ended.notify_all();
    }
    std::atomic<int> ended = 0;
  };
  const auto follower = std::make_shared<Follower>();
  {
    LogStore store(folder_.path(), kBytesMax);
    store.set_scope(kJob, {kFirst, 2, false}, kPlacement);
    store.follow(kJob, follower);
    EXPECT_TRUE(store.append(kWriter, kJob, kFirst, kRank, 0, "x").ok());
    store.set_scope(kJob, {kFirst, 2, true}, kPlacement);
    follower->ended.wait(0);
    store.forget(kJob);
  }
  EXPECT_EQ(follower->ended, 2);
  EXPECT_FALSE(std::filesystem::exists(folder_.path() + "/1"));
}

// A killed coordinator had forgotten a job, but not removed its files yet.
TEST_F(LogStoreTest, RemovesLeftoversOfAnEarlierRun) {
  EXPECT_TRUE(store_.append(kWriter, kJob, kFirst, kRank, 0, "kept").ok());
  std::filesystem::create_directories(folder_.path() + "/2/1");
  const std::vector<std::string> others = {"0002", "+3", "-4", "5 ", "notes", "0x7"};
  for (const std::string& other : others)
    std::filesystem::create_directories(folder_.path() + "/" + other);
  LogStore(folder_.path(), kBytesMax).remove_all_but({kJob});
  EXPECT_EQ(all(), "kept");
  EXPECT_FALSE(std::filesystem::exists(folder_.path() + "/2"));
  for (const std::string& other : others)
    EXPECT_TRUE(std::filesystem::exists(folder_.path() + "/" + other))
        << other << ": not a folder of a job";
}

TEST_F(LogStoreTest, RefusesUnknownLaunches) {
  EXPECT_FALSE(store_.append(kWriter, JobId(2), kFirst, kRank, 0, "x").ok());
  EXPECT_FALSE(store_.append(kWriter, kJob, Attempt(2), kRank, 0, "x").ok());
  EXPECT_FALSE(store_.append(kWriter, kJob, Attempt(0), kRank, 0, "x").ok());
  EXPECT_FALSE(store_.append(kWriter, kJob, kFirst, Rank(2), 0, "x").ok());
  EXPECT_FALSE(store_.append(kWriter, kJob, kFirst, Rank(-1), 0, "x").ok());
  EXPECT_FALSE(store_.append(kWriter, kJob, kFirst, kRank, UINT64_MAX - 1, "xyz").ok());
  store_.forget(kJob);
  EXPECT_FALSE(store_.append(kWriter, kJob, kFirst, kRank, 0, "x").ok());
}

}  // namespace
}  // namespace muster::coordinator
