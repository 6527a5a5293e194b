#include "common/process/start_limits.h"

#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "tests/unit/temp_folder.h"

namespace muster {
namespace {

using testing::HasSubstr;

struct LimitCase {
  const char* name;
  StartNeeds needs;
  ShellLimits limits;
  std::map<std::string, std::string> files;
  const char* problem;  // a part of the message; "": none
};

constexpr uint64_t kMiB = uint64_t{1} << 20;

const LimitCase kLimitCases[] = {
    {"pids.max of version 2",
     {.threads = 20},
     {},
     {{"proc/self/cgroup", "0::/\n"}, {"cgroup/pids.max", "30\n"}, {"cgroup/pids.current", "11\n"}},
     "muster-worker needs at least 20 more threads, but pids.max allows 30 processes and threads "
     "in this container, of which 11 run ("},
    {"pids.max of version 1, of an ancestor",
     {.threads = 20},
     {},
     {{"proc/self/cgroup", "8:pids:/docker/7\n"},
      {"cgroup/pids/docker/pids.max", "19\n"},
      {"cgroup/pids/docker/pids.current", "0\n"},
      {"cgroup/pids/docker/7/pids.max", "max\n"},
      {"cgroup/pids/docker/7/pids.current", "0\n"}},
     "pids.max allows 19"},
    {"pids.max with room for all",
     {.threads = 20},
     {},
     {{"proc/self/cgroup", "0::/\n"}, {"cgroup/pids.max", "31\n"}, {"cgroup/pids.current", "11\n"}},
     ""},
    {"ulimit -n",
     {.open_files = 40},
     {.open_files = 16},
     {},
     "muster-worker needs at least 40 open files, but ulimit -n allows 16; raise it"},
    {"ulimit -n with room for all", {.open_files = 40}, {.open_files = 40}, {}, ""},
    {"ulimit -v",
     {.address_bytes = 384 * kMiB},
     {.address_bytes = 400 * kMiB},
     {{"proc/self/statm", "25600 1 1 1 0 1 0\n"}},
     "MiB of address space, but ulimit -v allows 400 MiB; remove the limit: ulimit -v unlimited"},
    {"ulimit -v with room for all",
     {.address_bytes = 384 * kMiB},
     {.address_bytes = 4000 * kMiB},
     {{"proc/self/statm", "25600 1 1 1 0 1 0\n"}},
     ""},
    {"ulimit -d",
     {.data_bytes = 256 * kMiB},
     {.data_bytes = 300 * kMiB},
     {{"proc/self/statm", "1 1 1 1 0 25600 0\n"}},
     "needs at least 356 MiB of private memory, but ulimit -d allows 300 MiB; remove the limit"},
    {"ulimit -d with room for all",
     {.data_bytes = 256 * kMiB},
     {.data_bytes = 356 * kMiB},
     {{"proc/self/statm", "1 1 1 1 0 25600 0\n"}},
     ""},
    {"ulimit -f",
     {.file_bytes = kMiB},
     {.file_bytes = 10 << 10},
     {},
     "writes files of at least 1024 KiB, but ulimit -f allows 10 KiB; remove the limit"},
    {"ulimit -s",
     {},
     {.stack_bytes = 64 << 10},
     {},
     "needs at least 256 KiB of stack, but ulimit -s allows 64 KiB; raise it: ulimit -s 8192"},
    {"ulimit -s with room for all", {}, {.stack_bytes = kStackBytesMin}, {}, ""},
    {"ulimit -f with room for all", {.file_bytes = kMiB}, {.file_bytes = kMiB}, {}, ""},
    {"no limits", kWorkerNeeds, {}, {}, ""},
};

MachineRoots roots_in(const TempFolder& folder) {
  return {.proc = folder.file("proc"), .cgroup = folder.file("cgroup")};
}

void put_all(const TempFolder& folder, const std::map<std::string, std::string>& files) {
  for (const auto& [path, text] : files) {
    std::filesystem::create_directories(std::filesystem::path(folder.file(path)).parent_path());
    write_file(folder.file(path), text);
  }
}

TEST(StartLimits, NameTheLimitItsValueAndWhatIsNeeded) {
  for (const LimitCase& one : kLimitCases) {
    const TempFolder folder;
    put_all(folder, one.files);
    const absl::Status status =
        check_limits("muster-worker", one.needs, one.limits, roots_in(folder));
    EXPECT_EQ(status.ok(), std::string(one.problem).empty()) << one.name << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(one.problem)) << one.name;
  }
}

TEST(StartLimits, ThreadsThatStartAreNoProblem) {
  EXPECT_EQ(try_threads("muster-worker", 30, shell_limits()), absl::OkStatus());
}

// The kernel binds only unprivileged users: the child becomes one that has no other process.
TEST(StartLimits, UlimitOfProcessesIsNamed) {
  if (geteuid() != 0) GTEST_SKIP() << "changing to a user without other processes needs root";
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    const rlimit limit{5, 5};
    constexpr uid_t kUser = 61'234;
    std::string text = "setrlimit or setuid failed";
    if (setrlimit(RLIMIT_NPROC, &limit) == 0 && setuid(kUser) == 0)
      text = std::string(try_threads("muster-worker", 20, shell_limits()).message());
    (void)!write(ends[1], text.data(), text.size());
    _exit(0);
  }
  close(ends[1]);
  std::string text(4096, '\0');
  const ssize_t got = read(ends[0], text.data(), text.size());
  text.resize(got > 0 ? static_cast<size_t>(got) : 0);
  close(ends[0]);
  waitpid(child, nullptr, 0);
  EXPECT_THAT(text, testing::MatchesRegex(
                        "muster-worker needs at least 20 more threads, but only [0-4] start: "
                        "ulimit -u allows 5 processes and threads of this user, of which [1-5] "
                        "run; raise it .ulimit -u 2[1-5] or more, or nproc in .*"));
}

TEST(StartLimits, AreDescribedWhereAProgramFailsLater) {
  const TempFolder folder;
  EXPECT_EQ(describe_limits({}, roots_in(folder)), "");
  put_all(folder, {{"proc/self/cgroup", "0::/\n"},
                   {"cgroup/pids.max", "100\n"},
                   {"cgroup/pids.current", "97\n"}});
  EXPECT_EQ(describe_limits({.address_bytes = 2000 * kMiB, .open_files = 64, .processes = 20},
                            roots_in(folder)),
            "ulimit -v 2000 MiB, ulimit -n 64, ulimit -u 20, pids.max 100 (97 used)");
}

void throw_with_few_files() {
  const rlimit limit{64, 64};
  setrlimit(RLIMIT_NOFILE, &limit);
  name_limits_at_abort("muster-worker");
  std::thread([] { throw std::runtime_error("thread: Resource temporarily unavailable"); }).join();
}

TEST(StartLimitsDeathTest, AnUncaughtExceptionNamesThem) {
  EXPECT_DEATH(throw_with_few_files(),
               "muster-worker: thread: Resource temporarily unavailable .limits of this process: "
               ".*ulimit -n 64");
}

}  // namespace
}  // namespace muster
