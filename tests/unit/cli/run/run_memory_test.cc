#include "cli/run/run_memory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/temp_folder.h"

namespace muster::cli {
namespace {

namespace fs = std::filesystem;

TEST(RunMemory, IsRemovedWithTheCallAndSoAreFoldersOfKilledCalls) {
  const TempFolder root;
  const std::string prefix = root.file("muster-run-" + std::to_string(geteuid()) + "-");
  // The folder of a killed call whose process id was reused: 1 always exists.
  const std::string dead = prefix + "1-abcdef", living = prefix + "2-abcdef";
  for (const std::string& folder : {dead, living}) fs::create_directories(folder + "/job");
  const int lock = open(living.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  ASSERT_EQ(flock(lock, LOCK_EX | LOCK_NB), 0);
  std::string own;
  {
    const auto memory = RunMemory::create(root.path());
    ASSERT_NE(memory, nullptr);
    own = memory->path();
    fs::create_directories(own + "/job");
    EXPECT_FALSE(fs::exists(dead));
    EXPECT_TRUE(fs::exists(living));
  }
  EXPECT_FALSE(fs::exists(own));
  EXPECT_EQ(RunMemory::create(root.file("none")), nullptr);
  close(lock);
}

TEST(RunMemory, ManyCallsStartAtOnce) {
  constexpr int kCallers = 8, kRounds = 200;
  const TempFolder root;
  std::atomic<int> refused{0}, lost{0};
  std::vector<std::thread> callers(kCallers);
  for (std::thread& caller : callers) {
    caller = std::thread([&] {
      for (int i = 0; i < kRounds; ++i) {
        const auto memory = RunMemory::create(root.path());
        if (memory == nullptr)
          ++refused;
        else if (!fs::exists(memory->path()))
          ++lost;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(refused, 0);
  EXPECT_EQ(lost, 0);
  EXPECT_TRUE(fs::is_empty(root.path()));
}

}  // namespace
}  // namespace muster::cli
