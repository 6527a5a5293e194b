#include "worker/stacks/cpu_time.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

#include "tests/unit/temp_folder.h"

namespace muster::worker {
namespace {

TEST(CpuTimeTest, TheLimitThatIsUsedUpIsTheReason) {
  constexpr char kFive[] = "the limit of CPU time is used up (ulimit -t): 5 s";
  constexpr char kUsedUp[] = "the limit of CPU time is used up (ulimit -t)";
  constexpr char kOthers[] = "another process sent the signal: no limit of CPU time is used up";
  using Limit = std::optional<int64_t>;
  struct {
    const char* name;
    double used_s, used_by_children_s;
    Limit soft, hard;
    int32_t signal;
    bool is_childs;
    const char* text;
  } const cases[] = {
      {"both limits, as ulimit -t sets them", 5, 0, 5, 5, SIGKILL, false, kFive},
      {"the kernel's clock was some ticks ahead", 4.9, 0, 5, 5, SIGKILL, false, kFive},
      {"the hard limit, after a handler of SIGXCPU", 5.1, 0, 2, 5, SIGKILL, false, kFive},
      {"a short limit on loaded cores", 3.8, 0, 5, 5, SIGKILL, false, kFive},
      {"kill -9 before the limit", 3.7, 0, 5, 5, SIGKILL, false, ""},
      {"kill -9 beyond the soft limit", 6, 0, 5, 60, SIGKILL, false, ""},
      {"kill -9 without a hard limit", 6, 0, 5, {}, SIGKILL, false, ""},
      {"the time of children does not count", 0, 9, 5, 5, SIGKILL, false, ""},
      {"a shell's command", 0, 5, 5, 5, SIGKILL, true, kFive},
      {"a shell's command was killed", 5, 1, 5, 5, SIGKILL, true, ""},
      {"no time at all", 0, 0, 0, 0, SIGKILL, false,
       "the limit of CPU time is used up (ulimit -t): 0 s"},
      {"the soft limit, which the kernel raises", 5, 0, 6, 60, SIGXCPU, false, kFive},
      {"the soft limit of a shell's command", 0, 5, 5, 60, SIGXCPU, true, kFive},
      {"kill -XCPU before a soft limit of a second", 0, 0, 1, 60, SIGXCPU, false, kOthers},
      {"a batch system warns by SIGXCPU", 5, 0, {}, {}, SIGXCPU, false, kOthers},
      {"a batch system warns before the limit", 1, 0, 5, 5, SIGXCPU, false, kOthers},
      {"a command may have set its own limit", 0, 1, {}, {}, SIGXCPU, true, kUsedUp},
      {"a command may have set its own hard limit", 0, 1, {}, {}, SIGKILL, true, ""},
  };
  for (const auto& one : cases) {
    const CpuTime time{one.used_s, one.used_by_children_s, one.soft, one.hard};
    EXPECT_EQ(cpu_limit_text(time, one.signal, one.is_childs), one.text) << one.name;
  }
  EXPECT_EQ(cpu_limit_text(std::nullopt, SIGXCPU, false), kUsedUp);
  EXPECT_EQ(cpu_limit_text(std::nullopt, SIGKILL, false), "");
}

TEST(CpuTimeTest, LimitsAreReadInTheKernelsFormat) {
  const TempFolder folder;
  std::filesystem::create_directories(folder.file("7"));
  std::string fields = "7 (x) Z 1";
  for (int field = 5; field <= 52; ++field) absl::StrAppend(&fields, " ", field * 100);
  write_file(folder.file("7/stat"), fields);
  const auto limits = [&](const std::string& row) {
    write_file(folder.file("7/limits"), "Limit   Soft Limit   Hard Limit   Units\n" + row);
    const auto time = read_cpu_time(folder.path(), 7);
    return time
               ? absl::StrCat(time->soft_limit_s.value_or(-1), " ", time->hard_limit_s.value_or(-1))
               : "none";
  };
  EXPECT_EQ(limits("Max cpu time              5      60      seconds   \n"), "5 60");
  EXPECT_EQ(limits("Max cpu time              unlimited   60      seconds   \n"), "-1 60");
  EXPECT_EQ(limits("Max cpu time              unlimited   unlimited   seconds   \n"), "-1 -1");
  EXPECT_EQ(limits("Max cpu time              5\n"), "-1 -1");
  EXPECT_EQ(limits("Max file size             5      60      bytes   \n"), "-1 -1");
  const auto time = read_cpu_time(folder.path(), 7);
  ASSERT_TRUE(time.has_value());
  const auto ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  EXPECT_DOUBLE_EQ(time->used_s, (1400 + 1500) / ticks);
  EXPECT_DOUBLE_EQ(time->used_by_children_s, (1600 + 1700) / ticks);
  EXPECT_FALSE(read_cpu_time(folder.path(), 8).has_value());
}

// The kernel keeps both times and limits until the process is reaped.
TEST(CpuTimeTest, AProcessThatTheKernelKilledAtItsHardLimit) {
  const pid_t pid = fork();
  ASSERT_GE(pid, 0);
  if (pid == 0) {
    const rlimit second{1, 1};
    setrlimit(RLIMIT_CPU, &second);
    for (std::atomic<bool> spins = true; spins;) continue;
  }
  siginfo_t end{};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(pid), &end, WEXITED | WNOWAIT), 0);
  const auto time = read_cpu_time("/proc", pid);
  waitpid(pid, nullptr, 0);
  EXPECT_EQ(end.si_status, SIGKILL);
  EXPECT_EQ(cpu_limit_text(time, SIGKILL, false),
            "the limit of CPU time is used up (ulimit -t): 1 s");
}

}  // namespace
}  // namespace muster::worker
