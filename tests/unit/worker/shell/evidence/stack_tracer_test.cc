// Periodic stack traces of ranks, and their destinations.
#include "worker/shell/evidence/stack_tracer.h"

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/unit/temp_folder.h"
#include "tests/unit/worker/shell/evidence/stack_trace_fixture.h"

namespace muster::worker {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

// A waiting process in place of a rank.
class Waiting {
 public:
  Waiting() : pid_(fork()) {
    if (pid_ == 0) {
      while (true) pause();
    }
  }
  ~Waiting() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;
  pid_t pid() const { return pid_; }

 private:
  const pid_t pid_;
};

class StackTracerTest : public testing::Test {
 protected:
  // Waits until `holds`; returns false if it never does.
  template <class F>
  bool run_until(F&& holds) {
    const Instant give_up = monotonic_now() + std::chrono::seconds(60);
    while (!holds() && monotonic_now() < give_up) {
      loop_.restart();
      loop_.run_one_for(std::chrono::milliseconds(20));
    }
    return holds();
  }

  std::vector<StackTracer::TracedRank> ranks() const {
    return {{{JobId(7), Attempt(2), Rank(3)}, process_.pid(), folder_.path() + "/rank-3.log"}};
  }

  Waiting process_;  // before any thread
  TempFolder folder_;
  boost::asio::io_context loop_;
  StackTools tools_;
  const LaunchKey launch_{JobId(7), Attempt(2)};
  JobSpec spec_{.name = "llama",
                .stack_traces = {.collect = true, .to_cloud = false, .interval_seconds = 1}};
};

TEST_F(StackTracerTest, WritesIntoTheRanksOutputOnALineOfItsOwn) {
  const std::string log = folder_.path() + "/rank-3.log";
  std::ofstream(log) << "half a line";
  StackTracer tracer(loop_, tools_, {"node0", folder_.path() + "/debugging", std::nullopt},
                     [this](const LaunchKey&) { return ranks(); });
  tracer.begin(launch_, spec_);
  tracer.begin(launch_, spec_);
  ASSERT_TRUE(run_until([&] { return tracer.taken() == 1; }));
  const auto lines = lines_of(log);
  ASSERT_GE(lines.size(), 3U);
  EXPECT_EQ(lines[0], "half a line");
  EXPECT_THAT(lines[1], HasSubstr("muster: stacks of rank 3, pid "));
  EXPECT_THAT(lines[2], testing::AnyOf("thread main", HasSubstr("no stack: ")));
  tracer.end(launch_);
  EXPECT_FALSE(std::filesystem::exists(folder_.path() + "/debugging"));
}

TEST_F(StackTracerTest, AFileWithAnotherNameInPlaceOfAUsersOutputStays) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  const std::string log = folder_.path() + "/rank-3.log", secret = folder_.path() + "/secret";
  std::ofstream(secret) << "secret";
  std::filesystem::create_hard_link(secret, log);
  ASSERT_EQ(chown(folder_.path().c_str(), 47'777, 47'777), 0);
  StackTracer tracer(loop_, tools_, {"node0", folder_.path() + "/debugging", std::nullopt},
                     [this](const LaunchKey&) { return ranks(); });
  tracer.begin(launch_, spec_);
  ASSERT_TRUE(run_until([&] { return tracer.dropped() == 1; }));
  EXPECT_THAT(lines_of(secret), ElementsAre("secret"));
}

TEST_F(StackTracerTest, PrivateLinesAreForThisUserAlone) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  spec_.stack_traces.to_cloud = true;
  const std::string debugging = folder_.path() + "/debugging";
  const auto options = [&] {
    return StackTracerOptions{"node0", debugging, std::nullopt, /*is_private=*/true};
  };
  const auto mode_of = [](const std::string& path) {
    struct stat info {};
    return stat(path.c_str(), &info) == 0 ? info.st_mode & 07777 : 0;
  };
  {
    StackTracer tracer(loop_, tools_, options(), [this](const LaunchKey&) { return ranks(); });
    tracer.begin(launch_, spec_);
    ASSERT_TRUE(run_until([&] { return tracer.taken() == 1; }));
  }
  EXPECT_EQ(mode_of(debugging), 0700U);
  EXPECT_EQ(mode_of(debugging + "/stack_traces_job7_attempt2_node0.jsonl"), 0600U);

  // A folder in /tmp may be another user's.
  ASSERT_EQ(chown(debugging.c_str(), 47'777, 47'777), 0);
  bool has_read = false;
  StackTracer tracer(loop_, tools_, options(), [&](const LaunchKey&) {
    has_read = true;
    return ranks();
  });
  tracer.begin(launch_, spec_);
  loop_.restart();
  loop_.run();  // has nothing to wait for
  EXPECT_FALSE(has_read);
}

TEST_F(StackTracerTest, WritesJsonLinesForAnAgent) {
  spec_.stack_traces.to_cloud = true;
  const std::string debugging = folder_.path() + "/a/debugging";
  const mode_t umask_before = umask(077);
  StackTracer tracer(loop_, tools_, {"node0", debugging, std::nullopt},
                     [this](const LaunchKey&) { return ranks(); });
  tracer.begin(launch_, spec_);
  ASSERT_TRUE(run_until([&] { return tracer.taken() == 1; }));
  umask(umask_before);
  const std::string path = debugging + "/stack_traces_job7_attempt2_node0.jsonl";
  const auto lines = lines_of(path);
  ASSERT_THAT(lines, SizeIs(1));
  const json record = json::parse(lines[0], nullptr, false);
  EXPECT_EQ(record["verb"], "stacktraceanalyzer");
  EXPECT_EQ(record["rank"], 3);
  EXPECT_EQ(record["pid"], process_.pid());
  using std::filesystem::perms;
  EXPECT_NE(std::filesystem::status(path).permissions() & perms::others_read, perms::none);
  EXPECT_NE(std::filesystem::status(debugging).permissions() & perms::others_exec, perms::none);
}

TEST_F(StackTracerTest, HandsThemToACollectorInstead) {
  spec_.stack_traces.to_cloud = true;
  Collector collector({200});
  StackTracer tracer(
      loop_, tools_,
      {"node0", folder_.path() + "/debugging", *otlp_target(collector.endpoint(), "")},
      [this](const LaunchKey&) { return ranks(); });
  tracer.begin(launch_, spec_);
  ASSERT_TRUE(run_until([&] { return !collector.bodies().empty(); }));
  EXPECT_FALSE(std::filesystem::exists(folder_.path() + "/debugging"));
}

TEST_F(StackTracerTest, ALaunchWithoutARequestIsNotTraced) {
  spec_.stack_traces.collect = false;
  StackTracer tracer(loop_, tools_, {"node0", folder_.path(), std::nullopt},
                     [](const LaunchKey&) -> std::vector<StackTracer::TracedRank> {
                       ADD_FAILURE() << "requested of ranks";
                       return {};
                     });
  tracer.begin(launch_, spec_);
  loop_.run();  // has nothing to wait for
  EXPECT_EQ(tracer.taken() + tracer.dropped(), 0U);
}

}  // namespace
}  // namespace muster::worker
