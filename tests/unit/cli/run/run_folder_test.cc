#include "cli/run/run_folder.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/temp_folder.h"

namespace muster::cli {
namespace {

namespace fs = std::filesystem;

class RunFolderTest : public ::testing::Test {
 protected:
  const TempFolder temp_;
  const fs::path root_ = temp_.path();
  const std::string output_ = temp_.file("out/first");
};

TEST_F(RunFolderTest, EachCallHasANumber) {
  {
    const auto first = RunFolder::create(output_);
    ASSERT_TRUE(first.ok()) << first.status();
    EXPECT_EQ((*first)->path(), output_ + "/muster/0001");
  }
  const auto second = RunFolder::create(output_);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ((*second)->path(), output_ + "/muster/0002");
  EXPECT_TRUE(fs::is_directory((*second)->path()));
}

TEST_F(RunFolderTest, IsPrivate) {
  const mode_t before = umask(022);
  const auto folder = RunFolder::create(output_);
  umask(before);
  ASSERT_TRUE(folder.ok()) << folder.status();
  const auto mode = [](const std::string& path) { return fs::status(path).permissions(); };
  EXPECT_EQ(mode((*folder)->path()), fs::perms::owner_all);
  EXPECT_EQ(mode(output_ + "/muster"), fs::perms::owner_all);
  EXPECT_EQ(mode(output_ + "/muster/lock"), fs::perms::owner_read | fs::perms::owner_write);
  EXPECT_EQ(mode(output_), fs::perms(0755)) << "checkpoints are as the user's umask has it";
}

TEST_F(RunFolderTest, OnlyOneAtATime) {
  const auto first = RunFolder::create(output_);
  ASSERT_TRUE(first.ok()) << first.status();
  const auto second = RunFolder::create(output_);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(second.status().message()), ::testing::HasSubstr(output_));
}

TEST_F(RunFolderTest, OldOnesAreRemoved) {
  for (int i = 0; i < kRunsKeptMax + 5; ++i) ASSERT_TRUE(RunFolder::create(output_).ok());
  EXPECT_FALSE(fs::exists(output_ + "/muster/0005"));
  EXPECT_TRUE(fs::exists(output_ + "/muster/0006"));
  EXPECT_TRUE(fs::exists(output_ + "/muster/0025"));
}

TEST_F(RunFolderTest, ARejectedJobLeavesNothing) {
  {
    const auto folder = RunFolder::create(output_);
    ASSERT_TRUE(folder.ok()) << folder.status();
    std::ofstream((*folder)->file("config.json")) << "{}";
    (*folder)->discard();
  }
  EXPECT_FALSE(fs::exists(output_));
}

TEST_F(RunFolderTest, ARejectedJobKeepsExistingFiles) {
  fs::create_directories(output_ + "/checkpoints/5");
  const auto folder = RunFolder::create(output_);
  ASSERT_TRUE(folder.ok()) << folder.status();
  (*folder)->discard();
  EXPECT_TRUE(fs::exists(output_ + "/checkpoints/5"));
  EXPECT_FALSE(fs::exists(output_ + "/muster"));
}

TEST_F(RunFolderTest, ARejectedJobKeepsTheUsersEmptyFolders) {
  for (const std::string folder :
       {root_ / "out", fs::path(output_), fs::path(output_ + "/muster")}) {
    fs::create_directories(folder);
    {
      const auto run = RunFolder::create(output_);
      ASSERT_TRUE(run.ok()) << run.status();
      (*run)->discard();
    }
    EXPECT_TRUE(fs::is_directory(folder)) << folder;
    for (const auto& below : fs::directory_iterator(folder)) {
      EXPECT_EQ(below.path().filename(), "lock") << folder << ": in an earlier call's folder only";
    }
  }
}

TEST_F(RunFolderTest, OtherNamesAreNeitherCountedNorRemoved) {
  const std::vector<std::string> others = {"1", "00001", "+0002", "9999999 ", "0000", "0003.bak"};
  for (const std::string& other : others) fs::create_directories(output_ + "/muster/" + other);
  for (int i = 0; i < kRunsKeptMax + 2; ++i) {
    const auto run = RunFolder::create(output_);
    ASSERT_TRUE(run.ok()) << run.status();
    if (i == 0) {
      EXPECT_EQ(fs::path((*run)->path()).filename(), "0001");
    }
  }
  for (const std::string& other : others)
    EXPECT_TRUE(fs::exists(output_ + "/muster/" + other)) << other;
}

TEST_F(RunFolderTest, ConcurrentDiscardsAdmitOneCallAtATime) {
  std::atomic<int> holders{0}, calls{0};
  const auto call = [&] {
    for (int i = 0; i < 300; ++i) {
      const auto folder = RunFolder::create(output_);
      if (!folder.ok()) {
        ASSERT_EQ(folder.status().code(), absl::StatusCode::kAlreadyExists) << folder.status();
        continue;
      }
      ASSERT_EQ(holders.fetch_add(1), 0);
      ++calls;
      holders.fetch_sub(1);
      (*folder)->discard();
    }
  };
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t) threads.emplace_back(call);
  threads.clear();
  EXPECT_GT(calls, 0);
}

TEST_F(RunFolderTest, AFileInTheWayIsAnError) {
  std::ofstream(root_ / "out") << "x";
  EXPECT_EQ(RunFolder::create(output_).status().code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace muster::cli
