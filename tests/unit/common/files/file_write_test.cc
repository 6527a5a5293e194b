#include "common/files/file_write.h"

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/temp_folder.h"

namespace muster {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class FileWriteTest : public ::testing::Test {
 protected:
  size_t files() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(folder_), {}));
  }
  fs::perms mode(const fs::path& path) const { return fs::status(path).permissions(); }

  const TempFolder temp_;
  const fs::path folder_ = temp_.path();
};

TEST_F(FileWriteTest, WritesACompleteFileAndLeavesNoOther) {
  for (const Durability durability : {Durability::kProcess, Durability::kPowerLoss}) {
    const FileWriteOptions options{.durability = durability};
    ASSERT_TRUE(write_file_atomically(folder_ / "ports", "one", options).ok());
    EXPECT_EQ(read_file(folder_ / "ports"), "one");
    ASSERT_TRUE(write_file_atomically(folder_ / "ports", std::string(1 << 20, 'x'), options).ok());
    EXPECT_EQ(read_file(folder_ / "ports").size(), 1U << 20);
    EXPECT_EQ(files(), 1U);
  }
}

TEST_F(FileWriteTest, AFileNamedWithoutAFolderIsWrittenHere) {
  const fs::path before = fs::current_path();
  fs::current_path(folder_);
  EXPECT_TRUE(write_file_atomically("ports", "x", {.durability = Durability::kPowerLoss}).ok());
  fs::current_path(before);
  EXPECT_EQ(read_file(folder_ / "ports"), "x");
}

TEST_F(FileWriteTest, TheUmaskHoldsUnlessAModeIsGiven) {
  const mode_t before = umask(027);
  EXPECT_TRUE(write_file_atomically(folder_ / "usual", "x").ok());
  EXPECT_TRUE(write_file_atomically(folder_ / "private", "x", {.mode = 0600}).ok());
  EXPECT_TRUE(write_file_atomically(folder_ / "public", "x", {.mode = 0644}).ok());
  EXPECT_TRUE(write_file_atomically(folder_ / "public", "y", {.mode = 0600}).ok());
  umask(before);
  EXPECT_EQ(mode(folder_ / "usual"), fs::perms(0640));
  EXPECT_EQ(mode(folder_ / "private"), fs::perms(0600));
  EXPECT_EQ(mode(folder_ / "public"), fs::perms(0600)) << "the new file's mode, not the old one's";
}

TEST_F(FileWriteTest, AFileThatCannotBeWrittenIsNamed) {
  const auto status = write_file_atomically(folder_ / "absent" / "ports", "x");
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("absent/ports"));
  fs::create_directory(folder_ / "ports");
  EXPECT_FALSE(write_file_atomically(folder_ / "ports", "x").ok());
  EXPECT_EQ(files(), 1U) << "no temporary file is left";
}

// A limit on file sizes stands in for a full disk: the write fails half way.
TEST_F(FileWriteTest, AFileThatDoesNotFitLeavesTheOldOne) {
  ASSERT_TRUE(write_file_atomically(folder_ / "big", "old").ok());
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{100, 100};
    setrlimit(RLIMIT_FSIZE, &limit);
    _exit(write_file_atomically(folder_ / "big", std::string(1000, 'x')).ok() ? 0 : 7);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 7);
  EXPECT_EQ(read_file(folder_ / "big"), "old");
  EXPECT_EQ(files(), 1U);
}

// A name left by a crash, or a link placed by another user, is not written through.
TEST_F(FileWriteTest, ATemporaryNameThatIsTakenIsLeftAlone) {
  const std::string taken = folder_ / ("ports.tmp-" + std::to_string(getpid()) + "-0");
  fs::create_symlink(folder_ / "elsewhere", taken);
  ASSERT_TRUE(write_file_atomically(folder_ / "ports", "x").ok());
  EXPECT_EQ(read_file(folder_ / "ports"), "x");
  EXPECT_TRUE(fs::is_symlink(taken));
  EXPECT_FALSE(fs::exists(folder_ / "elsewhere"));
}

TEST_F(FileWriteTest, WritersOfOneFileDoNotMixTheirContents) {
  std::vector<std::thread> writers;
  for (char c = 'a'; c < 'e'; ++c) {
    writers.emplace_back([this, c] {
      for (int i = 0; i < 50; ++i)
        EXPECT_TRUE(write_file_atomically(folder_ / "shared", std::string(10'000, c)).ok());
    });
  }
  for (std::thread& writer : writers) writer.join();
  const std::string last = read_file(folder_ / "shared");
  EXPECT_EQ(last, std::string(10'000, last.at(0)));
  EXPECT_EQ(files(), 1U);
}

TEST_F(FileWriteTest, SyncOfAMissingPathNamesIt) {
  EXPECT_TRUE(sync_path(folder_).ok());
  const auto status = sync_path(folder_ / "absent");
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("absent"));
}

}  // namespace
}  // namespace muster
