#include "cli/terminal/child_process.h"

#include <gmock/gmock.h>
#include <signal.h>

#include <gtest/gtest.h>

#include "tests/unit/cli/terminal/captured_fd.h"

namespace muster::cli {
namespace {

constexpr auto kLong = std::chrono::milliseconds(20'000);
constexpr auto kNow = std::chrono::milliseconds(0);

TEST(ChildProcess, ReportsItsExitCodeAndOutput) {
  const TempFolder folder;
  const std::string path = folder.file("output");
  auto child = ChildProcess::start(
      {.command = {"/bin/sh", "-c", "echo out; echo err >&2; exit 7"}, .output_path = path});
  ASSERT_TRUE(child.ok()) << child.status();
  const auto end = (*child)->wait(kLong);
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->code, 7);
  EXPECT_EQ(end->signal, 0);
  EXPECT_EQ((*child)->wait(kNow)->code, 7);
  EXPECT_EQ(tail_of_file(path, 1000), "out\nerr");
  EXPECT_EQ(tail_of_file(path, 4), "err");
}

TEST(ChildProcess, ReportsItsSignalAndRunsInItsOwnGroup) {
  auto child = ChildProcess::start({.command = {"/bin/sleep", "100"}, .output_path = ""});
  ASSERT_TRUE(child.ok()) << child.status();
  EXPECT_EQ(getpgid((*child)->pid()), (*child)->pid());
  EXPECT_FALSE((*child)->wait(kNow).has_value());
  (*child)->signal(SIGTERM);
  const auto end = (*child)->wait(kLong);
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->signal, SIGTERM);
}

TEST(ChildProcess, DestructionKillsAndReaps) {
  pid_t pid = 0;
  {
    auto child = ChildProcess::start(
        {.command = {"/bin/sh", "-c", "trap '' TERM; sleep 100"}, .output_path = ""});
    ASSERT_TRUE(child.ok()) << child.status();
    pid = (*child)->pid();
  }
  EXPECT_NE(kill(pid, 0), 0);
}

TEST(ChildProcess, AProgramThatDoesNotExistIsNamed) {
  const auto child = ChildProcess::start({.command = {"/no/such/program"}, .output_path = ""});
  EXPECT_THAT(std::string(child.status().message()), ::testing::HasSubstr("/no/such/program"));
}

TEST(TailOfFile, MissingFilesAreEmpty) { EXPECT_EQ(tail_of_file("/no/such/file", 10), ""); }

}  // namespace
}  // namespace muster::cli
