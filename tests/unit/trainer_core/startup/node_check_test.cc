#include "trainer_core/startup/node_check.h"

#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

#include <gtest/gtest.h>

#include "tests/unit/temp_folder.h"

namespace muster::trainer {
namespace {

class NodeCheckTest : public testing::Test {
 protected:
  NodeCheckOptions options() const {
    return {.work_dir = folder_.path(), .shm_dir = folder_.path(), .memory_bytes = 1 << 20};
  }
  // Returns the sentence of a check that has to fail.
  static std::string failure(const NodeCheckOptions& options) {
    const auto parts = check_node(options);
    EXPECT_FALSE(node_check_passed(parts));
    return node_check_sentence(parts);
  }

  TempFolder folder_;
};

TEST_F(NodeCheckTest, AHealthyNodePassesAndLeavesNoFiles) {
  const auto parts = check_node(options());
  EXPECT_TRUE(node_check_passed(parts)) << node_check_sentence(parts);
  ASSERT_EQ(parts.size(), 6U);
  EXPECT_NE(node_check_details(parts).find("GFLOP/s"), std::string::npos);
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
}

// Process ids are reused, and repeat in other containers.
TEST_F(NodeCheckTest, ALeftoverOfTheSameProcessIdIsNoFault) {
  const std::string left = folder_.file("muster-node-check." + std::to_string(getpid()));
  write_file(left, "");
  const auto parts = check_node(options());
  EXPECT_TRUE(node_check_passed(parts)) << node_check_sentence(parts);
}

TEST_F(NodeCheckTest, AMissingFolderIsNamed) {
  NodeCheckOptions broken = options();
  broken.work_dir = folder_.file("gone");
  EXPECT_NE(failure(broken).find(folder_.file("gone")), std::string::npos);
  broken = options();
  broken.shm_dir = folder_.file("no-shm");
  const std::string sentence = failure(broken);
  EXPECT_NE(sentence.find("no-shm"), std::string::npos);
  EXPECT_EQ(sentence.find(";"), std::string::npos) << "nothing else is wrong: " << sentence;
}

TEST_F(NodeCheckTest, AFullDiskIsReportedAndUnchanged) {
  signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit small = before;
  small.rlim_cur = 64 << 10;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string sentence = failure(options());
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_NE(sentence.find("writing 4 MiB into " + folder_.path()), std::string::npos) << sentence;
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
}

// /dev/full is a device, not a folder to fill: a tmpfs of the test's own requires root.
TEST_F(NodeCheckTest, AFullMemoryFileSystemIsOnlyANote) {
  if (geteuid() != 0) GTEST_SKIP() << "mounting needs root";
  const std::string small = folder_.file("small");
  std::filesystem::create_directory(small);
  if (mount("muster", small.c_str(), "tmpfs", 0, "size=64k") != 0) GTEST_SKIP() << "no mounts here";
  NodeCheckOptions full = options();
  full.shm_dir = small;
  const auto parts = check_node(full);
  umount(small.c_str());
  EXPECT_TRUE(node_check_passed(parts)) << node_check_sentence(parts);
  EXPECT_NE(node_check_details(parts).find("no room in " + small), std::string::npos);
}

TEST_F(NodeCheckTest, MissingMemoryIsReported) {
  NodeCheckOptions greedy = options();
  greedy.memory_bytes = size_t{1} << 60;
  EXPECT_NE(failure(greedy).find("MiB of memory"), std::string::npos);
}

}  // namespace
}  // namespace muster::trainer
