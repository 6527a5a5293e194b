// The real muster-coordinator: its flags, its signals, and its behaviour without descriptors.
#include <gmock/gmock.h>
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <deque>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <absl/strings/match.h>
#include <nlohmann/json.hpp>

#include "common/time/time.h"
#include "coordinator/shell/storage/sqlite_database.h"
#include "coordinator/shell/storage/state_lock.h"
#include "tests/unit/coordinator/shell/shell_fixture.h"

namespace muster::coordinator {
namespace {

using testing::HasSubstr;

// The time limit of each wait. Real processes on a loaded machine may be slow, but only a defect
// takes this long.
constexpr Duration kPatience = std::chrono::seconds(30);

template <class F>
bool eventually(F condition) {
  const Instant deadline = monotonic_now() + kPatience;
  while (!condition()) {
    if (monotonic_now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

class ProgramTest : public testing::Test {
 protected:
  ~ProgramTest() override {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
  }

  // `prelude`: shell commands before the shell execs the program.
  void run(const std::vector<std::string>& flags, const std::string& prelude = "") {
    std::vector<std::string> words = {"/bin/sh", "-c",
                                      prelude + " exec \"$@\" 2> " + folder_.file("log"), "sh",
                                      MUSTER_COORDINATOR};
    words.insert(words.end(), flags.begin(), flags.end());
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    ASSERT_EQ(posix_spawn(&pid_, arguments[0], nullptr, nullptr, arguments.data(), environ), 0);
  }

  void serve(const std::string& prelude = "") {
    run({"--state-dir", folder_.file("state"), "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0",
         "--port-file", folder_.file("ports")},
        prelude);
    ASSERT_TRUE(eventually([&] { return std::filesystem::exists(folder_.file("ports")); }))
        << log();
    ports_ = nlohmann::json::parse(read_file(folder_.file("ports")));
  }

  int end() {
    int status = -1;
    EXPECT_TRUE(eventually([&] { return waitpid(pid_, &status, WNOHANG) == pid_; })) << log();
    pid_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

  bool page_contains(const std::string& page, const std::string& text) {
    return http_get(ports_["http_port"], page).find(text) != std::string::npos;
  }
  std::string log() const { return read_file(folder_.file("log")); }

  TempFolder folder_;
  nlohmann::json ports_;
  pid_t pid_ = 0;
};

TEST_F(ProgramTest, ACrowdThatTakesTheDescriptorsDoesNotCostItThePort) {
  serve("ulimit -n 128;");
  const int port = ports_["grpc_port"];
  {
    std::deque<RawConnection> crowd;
    for (int i = 0; i < 200; ++i) crowd.emplace_back(port);
    EXPECT_TRUE(eventually([&] { return page_contains("/readyz", " 503 "); })) << log();
    EXPECT_TRUE(page_contains("/healthz", " 200 "));
    EXPECT_TRUE(
        eventually([&] { return log().find("a connection is refused") != std::string::npos; }));
  }
  EXPECT_TRUE(eventually([&] { return page_contains("/readyz", " 200 "); }));
  const auto stub = v1::Muster::NewStub(
      grpc::CreateChannel(absl::StrCat("127.0.0.1:", port), grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  set_deadline(context);
  context.set_wait_for_ready(true);  // the last connections may still be closing
  v1::ListJobsResponse list;
  const grpc::Status status = stub->ListJobs(&context, v1::ListJobsRequest(), &list);
  EXPECT_TRUE(status.ok()) << status.error_message();
}

TEST_F(ProgramTest, TheFrontPageIsEmbedded) {
  serve("");
  EXPECT_TRUE(page_contains("/", " 200 "));
  EXPECT_TRUE(page_contains("/", "<title>Muster</title>"));
}

TEST_F(ProgramTest, TakesAsManyDescriptorsAsItMay) {
  serve("ulimit -Sn 64;");
  const std::string limits = read_file(absl::StrCat("/proc/", pid_, "/limits"));
  const std::string line = limits.substr(limits.find("Max open files"));
  EXPECT_THAT(line, testing::Not(HasSubstr(" 64 ")));
}

TEST_F(ProgramTest, TheEndOfItsTerminalEndsIt) {
  serve();
  kill(pid_, SIGHUP);
  EXPECT_EQ(end(), 0) << log();
  EXPECT_FALSE(std::filesystem::exists(folder_.file("ports")));
}

TEST_F(ProgramTest, UnderNohupTheEndOfItsTerminalIsNothing) {
  serve("trap '' HUP;");
  kill(pid_, SIGHUP);
  EXPECT_TRUE(page_contains("/healthz", " 200 "));
  kill(pid_, SIGTERM);
  EXPECT_EQ(end(), 0) << log();
}

TEST_F(ProgramTest, MistakesInFlagsAreNamed) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"--state-dri", "x"}, "unknown option --state-dri; did you mean --state-dir?"},
      {{}, "--state-dir is required (see muster-coordinator --help)"},
      {{"--state-dir", folder_.file("s"), "--worker-lease-ms"}, "--worker-lease-ms needs a value"},
      {{"--state-dir", folder_.file("s"), "--worker-lease-ms", "5"},
       "--worker-lease-ms: '5' is not a whole number from 100 to 3600000 (see"},
      {{"--state-dir", folder_.file("s"), "--worker-lease-ms", "0100", "--heartbeat-interval-ms",
        "0100"},
       "--worker-lease-ms is 100:"},
      {{"--state-dir", folder_.file("s"), "--hang-init-seconds", "soon"},
       "--hang-init-seconds: 'soon' is not a number from 0.1 to 604800 (see"},
      {{"--state-dir", folder_.file("s"), "twice"}, "takes no argument twice"},
  };
  for (const auto& [flags, expected] : cases) {
    run(flags);
    EXPECT_EQ(end(), 2);
    EXPECT_THAT(log(), testing::StartsWith("muster-coordinator: "));
    EXPECT_THAT(log(), HasSubstr(expected));
  }
}

TEST_F(ProgramTest, EachReasonNotToStartHasItsExitCode) {
  const std::string any = "127.0.0.1:0";
  const auto exit_code = [&](const std::string& state, const std::string& listen,
                             const std::vector<std::string>& more = {},
                             const std::string& prelude = "") {
    std::vector<std::string> flags = {"--state-dir", state, "--listen", listen, "--http", any};
    flags.insert(flags.end(), more.begin(), more.end());
    run(flags, prelude);
    return end();
  };
  const std::string state = folder_.file("state");
  std::filesystem::create_directories(state);
  {
    const auto lock = StateLock::take(state);
    ASSERT_TRUE(lock.ok());
    EXPECT_EQ(exit_code(state, any), 10) << log();
  }
  EXPECT_EQ(exit_code(state, "192.0.2.1:7070", {"--insecure"}), 11) << log();
  // A limit of file sizes stands for a full disk; it also leaves the log empty.
  EXPECT_EQ(exit_code(state, any, {}, "ulimit -f 0;"), 12);
  const std::string none = folder_.file("none");
  EXPECT_EQ(exit_code(state, any, {"--tls-cert", none, "--tls-key", none}), 14) << log();
  EXPECT_EQ(exit_code("/proc/none", any), 2) << log();
  std::filesystem::remove_all(state);
  std::filesystem::create_directories(state);
  std::ofstream(folder_.file("state/muster.db")) << std::string(8'192, 'x');
  EXPECT_EQ(exit_code(state, any), 13) << log();
}

TEST_F(ProgramTest, ASignalEndsAStartThatTakesLong) {
  serve();
  kill(pid_, SIGTERM);
  ASSERT_EQ(end(), 0) << log();
  const std::string state = folder_.file("state");
  auto other = SqliteDatabase::open(state + "/muster.db");
  ASSERT_TRUE(other->run("BEGIN EXCLUSIVE").ok());
  run({"--state-dir", state, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"});
  const auto is_starting = [&] {
    return absl::StrContains(read_file(state + "/coordinator.lock"), std::to_string(pid_));
  };
  ASSERT_TRUE(eventually(is_starting)) << log();
  kill(pid_, SIGTERM);
  EXPECT_EQ(end(), 0) << log();
  EXPECT_THAT(log(), HasSubstr("stopped during the start"));
  ASSERT_TRUE(other->run("COMMIT").ok());
  serve();
}

// A limit of file sizes and an exhausted quota are waited for as a full disk is.
TEST_F(ProgramTest, ALimitOfFileSizesIsWaitedFor) {
  serve();
  const auto stub = v1::Muster::NewStub(
      grpc::CreateChannel(absl::StrCat("127.0.0.1:", ports_["grpc_port"].get<int>()),
                          grpc::InsecureChannelCredentials()));
  const auto submit = [&](int number, Duration patience) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() +
                         std::chrono::duration_cast<std::chrono::milliseconds>(patience));
    v1::SubmitJobResponse response;
    return stub->SubmitJob(&context, submission(absl::StrCat("job", number), 1), &response);
  };
  ASSERT_TRUE(submit(1, kPatience).ok());
  rlimit limit{};
  ASSERT_EQ(prlimit(pid_, RLIMIT_FSIZE, nullptr, &limit), 0);
  const rlimit none{0, limit.rlim_max};
  ASSERT_EQ(prlimit(pid_, RLIMIT_FSIZE, &none, nullptr), 0);
  EXPECT_FALSE(submit(2, std::chrono::seconds(2)).ok());
  EXPECT_TRUE(eventually([&] { return page_contains("/readyz", " 503 "); }));
  EXPECT_TRUE(page_contains("/readyz", "the disk of the coordinator's state is full"));
  EXPECT_TRUE(page_contains("/metrics", "muster_coordinator_disk_free_bytes "));
  EXPECT_TRUE(page_contains("/healthz", " 200 "));
  EXPECT_EQ(submit(3, kPatience).error_code(), grpc::StatusCode::UNAVAILABLE) << "at once";
  ASSERT_EQ(prlimit(pid_, RLIMIT_FSIZE, &limit, nullptr), 0);
  EXPECT_TRUE(eventually([&] { return page_contains("/readyz", " 200 "); }));
  const grpc::Status status = submit(4, kPatience);
  EXPECT_TRUE(status.ok()) << status.error_message();
}

TEST_F(ProgramTest, AClientThatSendsNothingDoesNotKeepProbesOut) {
  serve();
  std::deque<RawConnection> crowd;
  for (int i = 0; i < 150; ++i) {
    crowd.emplace_back(ports_["http_port"].get<int>());
    crowd.back().send("GET /heal");
  }
  const Instant begin = monotonic_now();
  for (int i = 0; i < 8; ++i) EXPECT_TRUE(page_contains("/healthz", " 200 "));
  EXPECT_LT(monotonic_now() - begin, std::chrono::seconds(1));
}

}  // namespace
}  // namespace muster::coordinator
