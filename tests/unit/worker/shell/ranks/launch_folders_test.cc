#include "worker/shell/ranks/launch_folders.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <chrono>
#include <string>

#include "tests/unit/worker/shell/shell_fixture.h"

namespace muster::worker {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class LaunchFoldersTest : public ShellTest {
 protected:
  void SetUp() override {
    work = folder / "work";
    fs::create_directory(work);
  }

  static LaunchKey launch(uint64_t job, uint32_t attempt) { return {JobId(job), Attempt(attempt)}; }

  // Creates the folder of a launch of two ranks, started `age` ago.
  void make(const LaunchKey& key, std::chrono::seconds age) {
    fs::create_directories(subject().folder(key));
    std::ofstream(subject().config_path(key)) << "{}";
    for (int32_t r = 0; r < 2; ++r) {
      std::ofstream(subject().page_path(key, r)) << "page";
      std::ofstream(subject().page_path(key, r) + ".stacks") << "stacks";
      mkfifo((subject().folder(key) + "/nccl-trace-1.pipe").c_str(), 0600);
      std::ofstream(subject().log_path({key.job, key.attempt, Rank(r)})) << "log";
    }
    fs::last_write_time(subject().config_path(key), fs::file_time_type::clock::now() - age);
  }

  LaunchFolders subject() const { return LaunchFolders(work); }

  fs::path work;
};

TEST_F(LaunchFoldersTest, FindsLaunchesInTheOrderOfTheirStarts) {
  EXPECT_THAT(subject().find(), IsEmpty());
  make(launch(2, 1), std::chrono::seconds(10));
  make(launch(10, 1), std::chrono::seconds(30));
  make(launch(2, 3), std::chrono::seconds(20));
  EXPECT_THAT(subject().find(), ElementsAre(launch(10, 1), launch(2, 3), launch(2, 1)));
  EXPECT_THAT(LaunchFolders(folder / "absent").find(), IsEmpty());
}

TEST_F(LaunchFoldersTest, OtherFoldersAreNotFound) {
  for (const std::string name :
       {"0/1", "1/0", "01/1", "1/01", "1/x", "x/1", "-1/1", "1/+1", "1/4294967296"}) {
    fs::create_directories(work / name);
    std::ofstream(work / name / "config.json") << "{}";
  }
  fs::create_directories(work / "3/1");  // without a config
  std::ofstream(work / "4") << "a file";
  fs::create_directories(folder / "elsewhere/1");
  std::ofstream(folder / "elsewhere/1/config.json") << "{}";
  fs::create_directory_symlink(folder / "elsewhere", work / "5");
  EXPECT_THAT(subject().find(), IsEmpty());
}

TEST_F(LaunchFoldersTest, RemovesAFolderAndItsJobsWithTheLastOne) {
  make(launch(1, 1), {});
  make(launch(1, 2), {});
  EXPECT_TRUE(subject().remove(launch(1, 1)).ok());
  EXPECT_FALSE(fs::exists(work / "1/1"));
  EXPECT_TRUE(fs::exists(work / "1/2/rank-1.log"));
  EXPECT_TRUE(subject().remove(launch(1, 2)).ok());
  EXPECT_TRUE(fs::is_empty(work));
  EXPECT_TRUE(subject().remove(launch(1, 2)).ok()) << "it is gone already";
}

TEST_F(LaunchFoldersTest, NothingUnknownIsRemoved) {
  for (const std::string name :
       {"core", "config.json.bak", "progress.x", "progress.", "progress..stacks", "rank-.log",
        "rank-1.log.old", "rank-01.log", "rank-0.txt"}) {
    make(launch(1, 1), {});
    std::ofstream(work / "1/1" / name) << "theirs";
    const absl::Status status = subject().remove(launch(1, 1));
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << name;
    EXPECT_THAT(std::string(status.message()), HasSubstr(name));
    EXPECT_EQ(read_file(work / "1/1" / name), "theirs");
    EXPECT_FALSE(fs::exists(work / "1/1/rank-0.log"));
    EXPECT_THAT(subject().find(), IsEmpty()) << "what is left is no launch";
    fs::remove_all(work / "1");
  }
}

TEST_F(LaunchFoldersTest, AFolderOrALinkOfAKnownNameIsUnknown) {
  make(launch(1, 1), {});
  fs::create_directories(work / "1/1/rank-7.log/below");
  EXPECT_FALSE(subject().remove(launch(1, 1)).ok());
  EXPECT_TRUE(fs::exists(work / "1/1/rank-7.log/below"));

  make(launch(2, 1), {});
  std::ofstream(folder / "precious") << "x";
  fs::create_symlink(folder / "precious", work / "2/1/progress.9");
  EXPECT_FALSE(subject().remove(launch(2, 1)).ok());
  EXPECT_TRUE(fs::is_symlink(work / "2/1/progress.9"));
  EXPECT_TRUE(fs::exists(folder / "precious"));

  fs::create_directories(folder / "elsewhere/1");
  std::ofstream(folder / "elsewhere/1/config.json") << "{}";
  fs::create_directory(work / "3");
  fs::create_directory_symlink(folder / "elsewhere/1", work / "3/1");
  EXPECT_FALSE(subject().remove(launch(3, 1)).ok());
  EXPECT_TRUE(fs::exists(folder / "elsewhere/1/config.json"));
}

}  // namespace
}  // namespace muster::worker
