// Spawning and reaping, with real processes.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sched.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <fstream>
#include <latch>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <absl/strings/str_cat.h>

#include "tests/unit/worker/shell/shell_fixture.h"
#include "worker/shell/ranks/reaper.h"
#include "worker/shell/ranks/spawn.h"

namespace muster::worker {
namespace {

using ::testing::HasSubstr;

class WorkerProcessTest : public ShellTest {
 protected:
  void SetUp() override { ASSERT_TRUE(Reaper::adopt_orphans().ok()); }

  SpawnRequest request(const std::string& body) {
    return {.arguments = {script(body)},
            .environment = {"PATH=/usr/bin:/bin", "RANK=3", "MUSTER_JOB=1", "MUSTER_ATTEMPT=2"},
            .directory = folder,
            .log_path = folder / "rank.log"};
  }

  pid_t start(const std::string& body) {
    const auto pid = spawn(request(body));
    EXPECT_TRUE(pid.ok()) << pid.status();
    reaper.add(*pid, key, geteuid());
    return *pid;
  }

  ReapedProcess wait_for_end() {
    std::vector<ReapedProcess> ends;
    EXPECT_TRUE(eventually([&] {
      for (const ReapedProcess& end : reaper.reap()) ends.push_back(end);
      return !ends.empty();
    }));
    return ends.empty() ? ReapedProcess{} : ends.front();
  }

  std::string log() const { return read_file(folder / "rank.log"); }

  const RankKey key{JobId(1), Attempt(2), Rank(3)};
  Reaper reaper{"/proc"};
};

// The kernel must prefer a rank to the worker; a higher configured score stays.
TEST_F(WorkerProcessTest, TheKernelPrefersARankToItsWorkerForOomKills) {
  int own = 0;
  ASSERT_TRUE(std::ifstream("/proc/self/oom_score_adj") >> own);
  start("cat /proc/self/oom_score_adj");
  wait_for_end();
  EXPECT_EQ(std::stoi(log()), std::max(own, 500));
  int now = 0;
  ASSERT_TRUE(std::ifstream("/proc/self/oom_score_adj") >> now);
  EXPECT_EQ(now, own) << "the worker's is as it was";
}

TEST_F(WorkerProcessTest, ARankRunsOnTheAllowedCpusOfItsWorker) {
  cpu_set_t own;
  ASSERT_EQ(sched_getaffinity(0, sizeof(own), &own), 0);
  int32_t last = 0;
  for (int32_t cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(static_cast<size_t>(cpu), &own)) last = cpu;
  const auto allowed = [&](std::vector<int32_t> cpus) {
    SpawnRequest wanted = request("grep Cpus_allowed_list /proc/self/status");
    wanted.cpus = std::move(cpus);
    const auto pid = spawn(wanted);
    EXPECT_TRUE(pid.ok()) << pid.status();
    reaper.add(*pid, key, geteuid());
    wait_for_end();
    return log();
  };
  EXPECT_EQ(allowed({last, CPU_SETSIZE - 1, -1}), absl::StrCat("Cpus_allowed_list:\t", last, "\n"));
  EXPECT_EQ(allowed({CPU_SETSIZE - 1}), allowed({})) << "none of those is the worker's";
}

bool is_gone(pid_t pid) { return kill(pid, 0) != 0 && errno == ESRCH; }

// Another thread of the worker that traces a process, like a stack reader.
class Tracer {
 public:
  explicit Tracer(pid_t pid) {
    thread_ = std::thread([this, pid] {
      int status = 0;
      ok_ = ptrace(PTRACE_SEIZE, pid, nullptr, nullptr) == 0 &&
            ptrace(PTRACE_INTERRUPT, pid, nullptr, nullptr) == 0 &&
            waitpid(pid, &status, __WALL | __WNOTHREAD) == pid && WIFSTOPPED(status);
      held_.count_down();
      let_go_.wait();
      if (collects_) {
        kill(pid, SIGKILL);
        while (waitpid(pid, &status, __WALL | __WNOTHREAD) == pid && WIFSTOPPED(status)) {
        }
      } else {
        ptrace(PTRACE_DETACH, pid, nullptr, nullptr);
      }
    });
    held_.wait();
  }
  ~Tracer() { let_go(false); }
  Tracer(const Tracer&) = delete;
  Tracer& operator=(const Tracer&) = delete;

  bool holds() const { return ok_; }
  // `collects`: the process dies while traced, and the tracer collects its end.
  void let_go(bool collects) {
    if (!thread_.joinable()) return;
    collects_ = collects;
    let_go_.count_down();
    thread_.join();
  }

 private:
  std::latch held_{1}, let_go_{1};
  std::atomic<bool> ok_{false}, collects_{false};
  std::thread thread_;
};

TEST_F(WorkerProcessTest, ARankWhoseStackIsReadHasNotEnded) {
  const pid_t pid = start("exec sleep 1000");
  Tracer tracer(pid);
  if (!tracer.holds()) GTEST_SKIP() << "ptrace is not permitted here";
  EXPECT_TRUE(reaper.reap().empty());
  EXPECT_EQ(kill(pid, 0), 0);
  // A tracer does not hide an ended process, either.
  const auto other = spawn(request("exit 3"));
  ASSERT_TRUE(other.ok()) << other.status();
  const RankKey other_key{JobId(1), Attempt(2), Rank(4)};
  reaper.add(*other, other_key, geteuid());
  const ReapedProcess end = wait_for_end();
  EXPECT_EQ(end.key, other_key);
  EXPECT_EQ(end.exit_code, 3);
  tracer.let_go(false);
  EXPECT_TRUE(reaper.reap().empty());
  kill(pid, SIGKILL);
  EXPECT_EQ(wait_for_end().signal, SIGKILL);
}

TEST_F(WorkerProcessTest, ARankThatDiesWhileItsStackIsReadHasEnded) {
  const pid_t pid = start("exec sleep 1000");
  Tracer tracer(pid);
  if (!tracer.holds()) GTEST_SKIP() << "ptrace is not permitted here";
  tracer.let_go(true);
  EXPECT_EQ(wait_for_end().key, key);
}

TEST_F(WorkerProcessTest, ExitCodesAndOutputComeBack) {
  start("echo out; echo err >&2; exit 3");
  const ReapedProcess end = wait_for_end();
  EXPECT_EQ(end.key, key);
  EXPECT_EQ(end.exit_code, 3);
  EXPECT_EQ(end.signal, 0);
  EXPECT_EQ(log(), "out\nerr\n");
}

TEST_F(WorkerProcessTest, SignalsComeBackByNumber) {
  start("kill -9 $$");
  const ReapedProcess end = wait_for_end();
  EXPECT_EQ(end.signal, SIGKILL);
  EXPECT_EQ(end.exit_code, -1);
}

TEST_F(WorkerProcessTest, TheCpuTimeOfAnEndedRankExplainsASigkill) {
  constexpr char kReason[] = "the limit of CPU time is used up (ulimit -t): 1 s";
  start("ulimit -t 1; while :; do :; done");
  const ReapedProcess end = wait_for_end();
  EXPECT_EQ(end.signal, SIGKILL);
  EXPECT_EQ(cpu_limit_text(end.cpu_time, SIGKILL, false), kReason);
  start("ulimit -t 1; sh -c 'while :; do :; done'; exit $?");
  const ReapedProcess shell = wait_for_end();
  EXPECT_EQ(shell.exit_code, 128 + SIGKILL);
  EXPECT_EQ(cpu_limit_text(shell.cpu_time, SIGKILL, false), "");
  EXPECT_EQ(cpu_limit_text(shell.cpu_time, SIGKILL, true), kReason);
}

TEST_F(WorkerProcessTest, RunsInItsFolderWithItsEnvironmentAlone) {
  start(
      "pwd; env | grep -v '^PWD\\|^_\\|^SHLVL\\|^OLDPWD' | sort; cat; ls /proc/$$/fd > fds; wc -w "
      "< fds");
  EXPECT_EQ(wait_for_end().exit_code, 0);
  // Descriptors: stdin, stdout, stderr, and the shell's own of its script and of the folder it
  // lists.
  EXPECT_EQ(log(),
            folder.string() + "\nMUSTER_ATTEMPT=2\nMUSTER_JOB=1\nPATH=/usr/bin:/bin\nRANK=3\n5\n");
}

TEST_F(WorkerProcessTest, TheLogIsAppendedTo) {
  start("echo one; : > rank.log; echo two");
  wait_for_end();
  EXPECT_EQ(log(), "two\n") << "O_APPEND: no hole after a truncation from outside";
}

TEST_F(WorkerProcessTest, SignalStateIsTheDefault) {
  signal(SIGPIPE, SIG_IGN);
  start("kill -PIPE $$; exit 0");
  EXPECT_EQ(wait_for_end().signal, SIGPIPE);
}

TEST_F(WorkerProcessTest, FailuresNameTheFileAndTheReason) {
  SpawnRequest absent = request("exit 0");
  absent.arguments[0] = folder / "absent";
  auto pid = spawn(absent);
  ASSERT_FALSE(pid.ok());
  EXPECT_THAT(std::string(pid.status().message()),
              HasSubstr("there is no program " + absent.arguments[0]));
  EXPECT_EQ(pid.status().code(), absl::StatusCode::kNotFound);

  SpawnRequest elsewhere = request("exit 0");
  elsewhere.directory = folder / "nowhere";
  EXPECT_THAT(std::string(spawn(elsewhere).status().message()), HasSubstr("nowhere"));

  SpawnRequest unwritable = request("exit 0");
  unwritable.log_path = folder / "nowhere" / "rank.log";
  EXPECT_THAT(std::string(spawn(unwritable).status().message()), HasSubstr("nowhere/rank.log"));

  SpawnRequest no_program = request("exit 0");
  no_program.arguments[0] = folder;
  EXPECT_EQ(spawn(no_program).status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "no process is left behind";
}

TEST_F(WorkerProcessTest, ATrainerThatIgnoresSigtermFallsToSigkill) {
  const pid_t pid = start("trap 'echo not yet' TERM; echo ready; while :; do sleep 0.05; done");
  ASSERT_TRUE(eventually([&] { return log() == "ready\n"; }));
  reaper.signal(key, SIGTERM);
  ASSERT_TRUE(eventually([&] { return log().ends_with("not yet\n"); }));
  EXPECT_TRUE(reaper.reap().empty());
  EXPECT_FALSE(is_gone(pid));
  reaper.signal(key, SIGKILL);
  EXPECT_EQ(wait_for_end().signal, SIGKILL);
}

TEST_F(WorkerProcessTest, TheGroupDiesWithItsLeader) {
  start("sleep 1000 & echo $!; kill -9 $$");
  wait_for_end();
  const pid_t helper = std::stoi(log());
  EXPECT_TRUE(eventually([&] {
    reaper.reap();
    return is_gone(helper);
  }));
}

TEST_F(WorkerProcessTest, AGrandchildThatLeftTheGroupIsFoundByItsEnvironment) {
  start(
      "setsid sh -c 'echo $$; exec sleep 1000' & while [ ! -s rank.log ]; do sleep 0.01; done; "
      "exit 0");
  wait_for_end();
  const pid_t orphan = std::stoi(log());
  EXPECT_TRUE(eventually([&] {
    reaper.reap();
    return is_gone(orphan);
  }));
}

TEST_F(WorkerProcessTest, AnotherRanksOrphanIsLeftAlone) {
  const pid_t pid =
      start("(setsid sh -c 'echo $$; exec sleep 1000' &) ; while :; do sleep 0.05; done");
  ASSERT_TRUE(eventually([&] { return log().ends_with("\n"); }));
  const pid_t orphan = std::stoi(log());
  const std::string adopted = absl::StrCat("\nPPid:\t", getpid(), "\n");
  ASSERT_TRUE(eventually([&] {
    return read_file(absl::StrCat("/proc/", orphan, "/status")).find(adopted) != std::string::npos;
  }));
  reaper.reap();
  EXPECT_FALSE(is_gone(orphan)) << "its rank lives";
  EXPECT_FALSE(is_gone(pid));
  reaper.signal(key, SIGKILL);
  wait_for_end();
  EXPECT_TRUE(eventually([&] {
    reaper.reap();
    return is_gone(orphan);
  }));
}

// A rank of another user may clear the environment of its processes, or name another rank in it.
TEST_F(WorkerProcessTest, OrphansOfAUserWithoutRanksAreKilled) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  constexpr uid_t kUser = 47'777, kOther = 48'888;
  const auto start_as = [&](uid_t uid, const RankKey& rank, const std::string& body) {
    const std::filesystem::path own = folder / std::to_string(uid);
    std::filesystem::create_directory(own);
    EXPECT_EQ(chown(own.c_str(), uid, uid), 0);
    SpawnRequest wanted = request("");
    wanted.arguments = {"/bin/sh", "-c", body};
    wanted.directory = own;
    wanted.log_path = own / "rank.log";
    wanted.user = UserIds{.uid = uid, .gid = uid, .groups = {uid}};
    const auto pid = spawn(wanted);
    EXPECT_TRUE(pid.ok()) << pid.status();
    reaper.add(*pid, rank, uid);
  };
  ASSERT_EQ(chmod(folder.c_str(), 0711), 0);
  const RankKey other_key{JobId(9), Attempt(1), Rank(0)};
  start_as(kOther, other_key,
           "setsid env -i sh -c 'echo $$; exec sleep 1000' & while ! [ -s rank.log ]; do sleep "
           "0.01; done; exec sleep 1000");
  start_as(kUser, key,
           "setsid env -i sh -c 'echo $$; exec sleep 1000' & "
           "setsid env -i MUSTER_JOB=9 MUSTER_ATTEMPT=1 RANK=0 sh -c 'echo $$; exec sleep 1000' & "
           "while [ $(wc -l < rank.log) -lt 2 ]; do sleep 0.01; done");
  EXPECT_EQ(wait_for_end().key, key);
  std::istringstream lines(read_file(folder / std::to_string(kUser) / "rank.log"));
  pid_t cleared = 0, disguised = 0;
  ASSERT_TRUE(lines >> cleared >> disguised);
  EXPECT_TRUE(eventually([&] {
    reaper.reap();
    return is_gone(cleared) && is_gone(disguised);
  }));
  const pid_t live = std::stoi(read_file(folder / std::to_string(kOther) / "rank.log"));
  EXPECT_FALSE(is_gone(live)) << "a rank of its user is alive";
  reaper.signal(other_key, SIGKILL);
  wait_for_end();
  EXPECT_TRUE(eventually([&] {
    reaper.reap();
    return is_gone(live);
  }));
}

TEST_F(WorkerProcessTest, ManyEndsAtOnceAreAllCollected) {
  const SpawnRequest same = request("exit 7");
  for (int32_t r = 0; r < 20; ++r) {
    const auto pid = spawn(same);
    ASSERT_TRUE(pid.ok());
    reaper.add(*pid, {JobId(1), Attempt(1), Rank(r)}, geteuid());
  }
  size_t ends = 0;
  EXPECT_TRUE(eventually([&] {
    for (const ReapedProcess& end : reaper.reap()) ends += end.exit_code == 7 ? 1 : 0;
    return ends == 20;
  }));
  EXPECT_TRUE(reaper.reap().empty());
}

TEST(RankOfEnvironment, NeedsAllThreeVariables) {
  const auto block = [](std::string text) {
    std::replace(text.begin(), text.end(), ' ', '\0');
    return text;
  };
  EXPECT_EQ(rank_of_environment(block("A=1 MUSTER_JOB=4 RANK=0 MUSTER_ATTEMPT=2")),
            (RankKey{JobId(4), Attempt(2), Rank(0)}));
  for (const char* text :
       {"", "MUSTER_JOB=4 RANK=0", "MUSTER_JOB=x RANK=0 MUSTER_ATTEMPT=2",
        "MUSTER_JOB=4 RANK=-1 MUSTER_ATTEMPT=2", "MUSTER_JOB RANK MUSTER_ATTEMPT"}) {
    EXPECT_EQ(rank_of_environment(block(text)).job.value(), 0U) << text;
  }
}

}  // namespace
}  // namespace muster::worker
