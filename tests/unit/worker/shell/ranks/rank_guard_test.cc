#include "worker/shell/ranks/rank_guard.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <thread>

#include "tests/unit/worker/shell/shell_fixture.h"

namespace muster::worker {
namespace {

constexpr Duration kLease = std::chrono::seconds(1);

class RankGuardTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto guard = RankGuard::start();
    ASSERT_TRUE(guard.ok()) << guard.status();
    guard_ = *std::move(guard);
  }

  // Starts a process that leads its own group, as a rank does.
  static pid_t start_rank() {
    const pid_t pid = fork();
    if (pid == 0) {
      setpgid(0, 0);
      while (true) pause();
    }
    setpgid(pid, pid);
    return pid;
  }
  // Returns the signal that ended the rank; 0 if it does not end within `time`.
  static int signal_within(pid_t pid, Duration time) {
    const Instant deadline = monotonic_now() + time;
    int status = 0;
    while (waitpid(pid, &status, WNOHANG) != pid) {
      if (monotonic_now() > deadline) return 0;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return WIFSIGNALED(status) ? WTERMSIG(status) : -1;
  }
  static void end(pid_t pid) {
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }

  std::unique_ptr<RankGuard> guard_;
};

TEST_F(RankGuardTest, EndsTheRanksOfAWorkerThatStandsStill) {
  const pid_t rank = start_rank();
  const pid_t removed = start_rank();
  guard_->add(rank);
  guard_->add(removed);
  guard_->remove(removed);
  guard_->set_lease(kLease);
  EXPECT_EQ(signal_within(rank, kPatience), SIGKILL);
  EXPECT_TRUE(guard_->has_killed(rank));
  guard_->remove(rank);
  EXPECT_FALSE(guard_->has_killed(rank));
  EXPECT_EQ(signal_within(removed, std::chrono::milliseconds(300)), 0) << "the guard forgot it";
  end(removed);
}

TEST_F(RankGuardTest, EndsNothingWhileTheWorkerWorksOrHasNoLease) {
  const pid_t rank = start_rank();
  guard_->add(rank);
  EXPECT_EQ(signal_within(rank, 2 * kLease), 0) << "there is no lease yet";
  guard_->show_life();
  guard_->set_lease(kLease);
  for (int i = 0; i < 10; ++i) {
    guard_->show_life();
    ASSERT_EQ(signal_within(rank, kGuardBeat), 0);
  }
  EXPECT_FALSE(guard_->has_killed(rank));
  end(rank);
}

}  // namespace
}  // namespace muster::worker
