#include "worker/stacks/process_activity.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

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
  EXPECT_EQ(activity_with(sleeper.pid(), [](const auto& a) { return a.is_asleep; }).busy, 0U);
  // A tracer that reads the stack interrupts the system call, which then continues under another
  // number. A signal does the same.
  kill(sleeper.pid(), SIGSTOP);
  kill(sleeper.pid(), SIGCONT);
  (void)activity_with(sleeper.pid(), [](const auto& a) { return a.is_asleep; });
  const Child reader(wait_forever);
  const auto idle = activity_with(reader.pid(), [](const auto& a) { return a.busy == 0; });
  EXPECT_TRUE(idle.is_known);
  EXPECT_FALSE(idle.is_asleep);
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

TEST(ProcessActivity, OfAProcessThatIsGoneNothingIsKnown) {
  pid_t pid = 0;
  {
    pid = Child([] {}).pid();
  }
  EXPECT_FALSE(read_process_activity(kProc, pid).is_known);
}

}  // namespace
}  // namespace muster::worker
