#include "cli/scrape_target.h"

#include <sys/stat.h>

#include <filesystem>

#include <gtest/gtest.h>

#include "tests/unit/temp_folder.h"

namespace muster::cli {
namespace {

TEST(ScrapeTarget, IsThereForEverybodyAsLongAsItsOwner) {
  const TempFolder folder;
  const std::string path = folder.file("worker-node1.json");
  {
    ScrapeTarget target(path, {.job = "muster-worker", .node = "node1", .cluster = "test-12"});
    EXPECT_FALSE(std::filesystem::exists(path));
    ASSERT_TRUE(target.write("[fd00::1]", 7072).ok());
    EXPECT_EQ(read_file(path),
              "[{\"labels\":{\"cluster\":\"test-12\",\"job\":\"muster-worker\",\"node\":\"node1\"},"
              "\"targets\":[\"[fd00::1]:7072\"]}]\n");
    struct stat found {};
    ASSERT_EQ(stat(path.c_str(), &found), 0);
    EXPECT_EQ(found.st_mode & 0777, 0644U);
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(ScrapeTarget, LeavesWhatTheNextTurnHasWritten) {
  const TempFolder folder;
  const std::string path = folder.file("coordinator.json");
  {
    ScrapeTarget target(path, {.job = "muster-coordinator"});
    ASSERT_TRUE(target.write("10.0.0.1", 7071).ok());
    EXPECT_EQ(read_file(path),
              "[{\"labels\":{\"job\":\"muster-coordinator\"},\"targets\":[\"10.0.0.1:7071\"]}]\n");
    write_file(path, "[]\n");
  }
  EXPECT_EQ(read_file(path), "[]\n");
  EXPECT_FALSE(ScrapeTarget(folder.file("missing/a.json"), {}).write("h", 1).ok());
}

}  // namespace
}  // namespace muster::cli
