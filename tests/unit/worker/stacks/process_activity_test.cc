#include "worker/stacks/process_activity.h"

#include <linux/futex.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <gtest/gtest.h>

namespace muster::worker {
namespace {

constexpr char kProc[] = "/proc";

// A child process that runs `what` until it is destroyed.
class Child {
 public:
  explicit Child(const std::function<void()>& what) : pid_(fork()) {
    if (pid_ != 0) return;
    what();
    _exit(0);
  }
  ~Child() {
    kill(-pid_, SIGKILL);
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_;
};

// Reads the activity until it has the property, at most for 10 s.
ProcessActivity activity_with(pid_t pid, const std::function<bool(const ProcessActivity&)>& has) {
  ProcessActivity activity;
  for (int i = 0; i < 1000; ++i) {
    activity = read_process_activity(kProc, pid);
    if (has(activity)) return activity;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  ADD_FAILURE() << "the process does not have the property";
  return activity;
}

void wait_forever() {
  int ends[2];
  char byte = 0;
  if (pipe(ends) == 0) (void)!read(ends[0], &byte, 1);
}

TEST(ProcessActivity, ABusyLoopUsesCpuTime) {
  const Child child([] {
    std::atomic<bool> loops{true};
    while (loops) {
    }
  });
  const auto activity =
      activity_with(child.pid(), [](const auto& a) { return a.cpu.count() > 0 && a.busy > 0; });
  EXPECT_TRUE(activity.is_known);
  EXPECT_FALSE(activity.is_asleep);
}

TEST(ProcessActivity, ASleepEndsByItselfAndAReadOfAPipeDoesNot) {
  const Child sleeper([] {
    for (;;) sleep(1000);
  });
  // The files of one process are read one after the other, so one reading can show both.
  (void)activity_with(sleeper.pid(), [](const auto& a) { return a.is_asleep && a.busy == 0; });
  // A tracer that reads the stack interrupts the system call, which then continues under another
  // number. A signal does the same.
  kill(sleeper.pid(), SIGSTOP);
  kill(sleeper.pid(), SIGCONT);
  (void)activity_with(sleeper.pid(), [](const auto& a) { return a.is_asleep; });
  const Child reader(wait_forever);
  const auto idle =
      activity_with(reader.pid(), [](const auto& a) { return a.busy == 0 && !a.is_asleep; });
  EXPECT_TRUE(idle.is_known);
  EXPECT_FALSE(idle.has_device);
  EXPECT_EQ(idle.stopped_pid, 0);
}

TEST(ProcessActivity, AStoppedDescendantIsFound) {
  const Child parent([] {
    (void)setpgid(0, 0);
    if (fork() == 0) raise(SIGSTOP);
    wait_forever();
  });
  const auto activity =
      activity_with(parent.pid(), [](const auto& a) { return a.stopped_pid != 0; });
  EXPECT_NE(activity.stopped_pid, parent.pid());
  EXPECT_FALSE(activity.stopped_name.empty());
}

// A folder with the layout of /proc: process 10, its child 11, and the files that are read of them.
class FakeProc {
 public:
  FakeProc() : root_(testing::TempDir() + "/process_activity_" + std::to_string(getpid())) {
    std::filesystem::remove_all(root_);
    add(10, "11");
    add(11, "");
  }
  ~FakeProc() { std::filesystem::remove_all(root_); }
  FakeProc(const FakeProc&) = delete;
  FakeProc& operator=(const FakeProc&) = delete;

  void write(const std::string& file, const std::string& text) const {
    std::filesystem::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text;
  }
  void set_call(int64_t number, const std::vector<std::string>& arguments) const {
    write("11/syscall", absl::StrCat(number, " ", absl::StrJoin(arguments, " "), " 0x7ff0 0x7ff8"));
  }
  void remove(const std::string& file) const { std::filesystem::remove_all(root_ / file); }
  ProcessActivity read() const { return read_process_activity(root_, 10); }

 private:
  void add(pid_t pid, const std::string& children) const {
    const std::string stat = absl::StrCat(
        pid, " (python) S 1 1 1 0 -1 0 0 0 0 0 5 5 0 0 20 0 1 0 100 4096 10 1 1 1 140720000 0");
    const std::string folder = absl::StrCat(pid, "/");
    for (const std::string& task : {folder, absl::StrCat(folder, "task/", pid, "/")})
      write(task + "stat", stat);
    write(absl::StrCat(folder, "task/", pid, "/children"), children);
    write(folder + "io", "rchar: 100\nwchar: 20\n");
    write(folder + "syscall", "0 0x3 0x7f00 0x1 0x0 0x0 0x0 0x7ff0 0x7ff8");
    std::filesystem::create_directories(root_ / folder / "fd");
  }

  std::filesystem::path root_;
};

TEST(ProcessActivity, NothingIsKnownIfAnythingOfAProcessIsNotReadable) {
  {
    const ProcessActivity activity = FakeProc().read();
    EXPECT_TRUE(activity.is_known);
    EXPECT_FALSE(activity.is_asleep);
    EXPECT_EQ(activity.io_bytes, 240U);
  }
  for (const char* file : {"11/io", "11/fd", "11/syscall", "11/stat", "11/task", "11/task/11/stat",
                           "11/task/11/children", "10/io"}) {
    const FakeProc proc;
    proc.remove(file);
    EXPECT_FALSE(proc.read().is_known) << file;
  }
}

TEST(ProcessActivity, AWaitWithATimeLimitInAnyProcessIsASleep) {
  struct Call {
    int64_t number;
    std::vector<std::string> arguments;
  };
  const std::string wait = absl::StrCat("0x", absl::Hex(FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG));
  const std::string wake = absl::StrCat("0x", absl::Hex(FUTEX_WAKE | FUTEX_PRIVATE_FLAG));
  const std::vector<Call> sleeps = {
      {SYS_nanosleep, {"0x7f00", "0x0", "0x0", "0x0", "0x0", "0x0"}},
      {SYS_clock_nanosleep, {"0x1", "0x0", "0x7f00", "0x0", "0x0", "0x0"}},
      {SYS_restart_syscall, {"0x7f00", "0x1", "0x1388", "0x0", "0x0", "0x0"}},
      {SYS_ppoll, {"0x7f00", "0x1", "0x7f10", "0x0", "0x8", "0x0"}},
      {SYS_pselect6, {"0x5", "0x7f00", "0x0", "0x0", "0x7f10", "0x0"}},
      {SYS_epoll_pwait, {"0x4", "0x7f00", "0x10", "0x1388", "0x0", "0x8"}},
      {SYS_futex, {"0x7f00", wait, "0x0", "0x7f10", "0x0", "0xffffffff"}}};
  const std::vector<Call> endless = {
      {SYS_restart_syscall, {"0x7f00", "0x1", "0xffffffff", "0x0", "0x0", "0x0"}},
      {SYS_ppoll, {"0x7f00", "0x1", "0x0", "0x0", "0x8", "0x0"}},
      {SYS_pselect6, {"0x5", "0x7f00", "0x0", "0x0", "0x0", "0x0"}},
      {SYS_epoll_pwait, {"0x4", "0x7f00", "0x10", "0xffffffff", "0x0", "0x8"}},
      {SYS_futex, {"0x7f00", wait, "0x0", "0x0", "0x0", "0xffffffff"}},
      {SYS_futex, {"0x7f00", wake, "0x1", "0x7f10", "0x0", "0x0"}}};
  const FakeProc proc;
  for (const Call& call : sleeps) {
    proc.set_call(call.number, call.arguments);
    EXPECT_TRUE(proc.read().is_asleep) << call.number;
  }
  for (const Call& call : endless) {
    proc.set_call(call.number, call.arguments);
    EXPECT_FALSE(proc.read().is_asleep) << call.number << " " << call.arguments[1];
    EXPECT_TRUE(proc.read().is_known) << call.number;
  }
}

TEST(ProcessActivity, AMainThreadThatWaitsForAnEventIsNotAwake) {
  const Child looper([] {
    std::atomic<bool> loops{true};
    while (loops) {
    }
  });
  const Child sleeper([] {
    for (;;) sleep(1000);
  });
  const Child reader(wait_forever);
  (void)activity_with(looper.pid(), [](const auto& a) { return a.cpu.count() > 0; });
  (void)activity_with(sleeper.pid(), [](const auto& a) { return a.is_asleep; });
  (void)activity_with(reader.pid(), [](const auto& a) { return a.busy == 0; });
  EXPECT_TRUE(is_main_thread_awake(kProc, looper.pid()));
  EXPECT_TRUE(is_main_thread_awake(kProc, sleeper.pid())) << "as in time.sleep()";
  EXPECT_FALSE(is_main_thread_awake(kProc, reader.pid()));
  EXPECT_FALSE(is_main_thread_awake("/nonexistent", 1));
}

TEST(ProcessActivity, OfAProcessThatIsGoneNothingIsKnown) {
  pid_t pid = 0;
  {
    pid = Child([] {}).pid();
  }
  EXPECT_FALSE(read_process_activity(kProc, pid).is_known);
}

}  // namespace
}  // namespace muster::worker
