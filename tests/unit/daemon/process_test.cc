#include "daemon/process.h"

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include "tests/unit/temp_folder.h"

namespace muster::daemon {
namespace {

using ::testing::HasSubstr;

class ProcessTest : public ::testing::Test {
 protected:
  const TempFolder temp_;
  const std::filesystem::path folder_ = temp_.path();
};

TEST_F(ProcessTest, MakesAFolderWithItsParents) {
  EXPECT_TRUE(make_writable_directory(folder_ / "a" / "b").ok());
  EXPECT_TRUE(make_writable_directory(folder_ / "a" / "b").ok());
  EXPECT_TRUE(std::filesystem::is_empty(folder_ / "a" / "b"));
  std::ofstream(folder_ / "file") << "x";
  const auto status = make_writable_directory(folder_ / "file" / "below");
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), HasSubstr("file/below"));
}

TEST_F(ProcessTest, MakesAPrivateFolderInOrdinaryOnes) {
  const mode_t before = umask(022);
  EXPECT_TRUE(make_writable_directory(folder_ / "a" / "b", 0700).ok());
  umask(before);
  EXPECT_EQ(std::filesystem::status(folder_ / "a" / "b").permissions(),
            std::filesystem::perms::owner_all);
  EXPECT_EQ(std::filesystem::status(folder_ / "a").permissions(), std::filesystem::perms(0755));
}

TEST_F(ProcessTest, AReadOnlyFolderIsAnError) {
  if (geteuid() == 0) GTEST_SKIP() << "root may write anywhere";
  std::filesystem::permissions(
      folder_, std::filesystem::perms::owner_read | std::filesystem::perms::owner_exec);
  EXPECT_EQ(make_writable_directory(folder_).code(), absl::StatusCode::kPermissionDenied);
}

TEST_F(ProcessTest, HasItsOwnFigures) {
  EXPECT_THAT(*own_executable_path(), HasSubstr("daemon_test"));
  EXPECT_NE(*draw_random_id(), *draw_random_id());
}

// A middle process starts a child that dies with its parent, and exits; the child must receive
// SIGTERM.
TEST_F(ProcessTest, DiesWithItsParent) {
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe(ends.data()), 0);
  const pid_t middle = fork();
  ASSERT_GE(middle, 0);
  if (middle == 0) {
    std::array<int, 2> armed{};
    if (pipe(armed.data()) != 0) _exit(1);
    if (fork() == 0) {
      signal(SIGTERM, SIG_DFL);
      const char ok = die_with_parent().ok() ? 'y' : 'n';
      if (write(armed[1], &ok, 1) != 1) _exit(1);
      while (true) pause();  // keeps `ends` open until it is killed
    }
    char ok = 'n';
    const bool got = read(armed[0], &ok, 1) == 1;
    _exit(got && ok == 'y' ? 0 : 1);
  }
  close(ends[1]);
  int status = 0;
  waitpid(middle, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  char byte = 0;
  EXPECT_EQ(read(ends[0], &byte, 1), 0) << "the pipe ends when its last holder has ended";
  close(ends[0]);
}

}  // namespace
}  // namespace muster::daemon
