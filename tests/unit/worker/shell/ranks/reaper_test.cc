// Which processes the reaper takes for those that a rank has left behind. Spawning and reaping:
// process_test.cc.
#include "worker/shell/ranks/reaper.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <absl/strings/str_split.h>

#include "tests/unit/worker/shell/shell_fixture.h"
#include "worker/shell/ranks/spawn.h"

namespace muster::worker {
namespace {

// In a folder with the layout of /proc, whose files show which of them are read, and when.
class OrphanTest : public ShellTest {
 protected:
  void SetUp() override {
    orphan_ = fork();
    if (orphan_ == 0) {
      execl("/bin/sleep", "sleep", "600", nullptr);
      _exit(127);
    }
    std::filesystem::create_directories(proc_ / "self/task/1");
    write_file(proc_ / "self/task/1/children", absl::StrCat(orphan_, " "));
    std::filesystem::create_directories(proc_ / std::to_string(orphan_));
    write_file(of_orphan("stat"), read_file(absl::StrCat("/proc/", orphan_, "/stat")));
  }
  void TearDown() override {
    kill(orphan_, SIGKILL);
    waitpid(orphan_, nullptr, 0);
  }

  std::string of_orphan(const char* name) const { return proc_ / std::to_string(orphan_) / name; }
  void set_user(uid_t uid) {
    const std::string ids = absl::StrCat("\t", uid, "\t", uid, "\t", uid, "\t", uid, "\n");
    write_file(of_orphan("status"), absl::StrCat("Uid:", ids, "Gid:", ids));
  }
  void start_rank(const RankKey& rank, uid_t uid, const std::string& body) {
    const auto pid = spawn({.arguments = {"/bin/sh", "-c", body},
                            .environment = {"PATH=/usr/bin:/bin"},
                            .directory = folder,
                            .log_path = folder / "rank.log"});
    ASSERT_TRUE(pid.ok()) << pid.status();
    reaper_.add(*pid, rank, uid);
  }
  void wait_for_end() {
    EXPECT_TRUE(eventually([&] { return !reaper_.reap().empty(); }));
  }
  void end_rank(const RankKey& rank, uid_t uid) {
    start_rank(rank, uid, "exit 0");
    wait_for_end();
  }
  bool is_killed() const {
    siginfo_t info{};
    return waitid(P_PID, static_cast<id_t>(orphan_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid == orphan_;
  }

  const std::filesystem::path proc_ = folder / "proc";
  const RankKey ended_{JobId(1), Attempt(2), Rank(3)};
  const RankKey live_{JobId(9), Attempt(1), Rank(0)};
  const std::string of_live_{"MUSTER_JOB=9\0MUSTER_ATTEMPT=1\0RANK=0\0", 37};
  Reaper reaper_{proc_};
  pid_t orphan_ = 0;
};

TEST_F(OrphanTest, ItsEnvironmentIsReadOnce) {
  set_user(geteuid());
  write_file(of_orphan("environ"), of_live_);
  start_rank(live_, geteuid(), "exec sleep 600");
  end_rank(ended_, geteuid());
  EXPECT_FALSE(is_killed()) << "its rank lives";
  write_file(of_orphan("environ"), "A=b");
  reaper_.signal(live_, SIGKILL);
  wait_for_end();
  EXPECT_TRUE(eventually([&] { return is_killed(); }));
}

TEST_F(OrphanTest, AnotherProcessWithItsPidIsExamined) {
  set_user(geteuid());
  write_file(of_orphan("environ"), "A=b");
  end_rank(ended_, geteuid());
  EXPECT_FALSE(is_killed()) << "of no rank";
  std::string stat = read_file(of_orphan("stat"));
  std::vector<std::string> fields = absl::StrSplit(stat, ' ');
  fields.at(21) = "1";  // its start
  write_file(of_orphan("stat"), absl::StrJoin(fields, " "));
  write_file(of_orphan("environ"), of_live_);
  end_rank(ended_, geteuid());
  EXPECT_TRUE(eventually([&] { return is_killed(); }));
}

// Reading the environment of a process of another user may take as long as the user likes.
TEST_F(OrphanTest, TheEnvironmentOfAUserWithoutRanksIsNotRead) {
  constexpr uid_t kUser = 47'777;
  set_user(kUser);
  ASSERT_EQ(mkfifo(of_orphan("environ").c_str(), 0600), 0);
  const int fd = open(of_orphan("environ").c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  ASSERT_EQ(write(fd, "A=b", 3), 3);
  end_rank(ended_, kUser);
  EXPECT_TRUE(eventually([&] { return is_killed(); }));
  int unread = 0;
  EXPECT_EQ(ioctl(fd, FIONREAD, &unread), 0);
  EXPECT_EQ(unread, 3);
  close(fd);
}

}  // namespace
}  // namespace muster::worker
