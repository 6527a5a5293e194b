#include "cli/scrape_target.h"

#include <sys/stat.h>

#include <filesystem>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "tests/unit/temp_folder.h"

namespace muster::cli {
namespace {

TEST(ScrapeTarget, IsReadableByAllWhileItsOwnerExists) {
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

TEST(ScrapeTarget, KeepsAFileOfTheNextAllocation) {
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

TEST(ScrapeFile, NamesItsJob) {
  const ScrapeOwner task{"my-test", "12_3"};
  EXPECT_EQ(task.coordinator_file(), "my-test-12_3-coordinator.json");
  EXPECT_EQ(task.worker_file("node-1"), "my-test-12_3-worker-node-1.json");
  EXPECT_EQ(job_of_scrape_file(task.coordinator_file(), "my-test"), "12_3");
  EXPECT_EQ(job_of_scrape_file(task.worker_file("node-1"), "my-test"), "12_3");
  // Files of other clusters, and other files.
  for (const char* name :
       {"my-test-12_3-coordinator.json", "test-2-12-coordinator.json", "test-12-notes.json",
        "test-coordinator.json", "test-12-worker-node1", "worker-node1.json", "test"})
    EXPECT_EQ(job_of_scrape_file(name, "test"), "") << name;
}

TEST(ScrapeFile, IsRemovedByTheNextCommandAfterItsJob) {
  const TempFolder folder;
  const ScrapeOwner self{"test", "12"};
  const std::string runs = ScrapeOwner{"test", "7_1"}.worker_file("node1"),
                    over = ScrapeOwner{"test", "7_2"}.worker_file("node1"),
                    earlier_allocation = self.worker_file("node9"),
                    elsewhere = ScrapeOwner{"other", "7_2"}.coordinator_file();
  const auto write_all = [&] {
    for (const std::string& name : {runs, over, earlier_allocation, elsewhere})
      write_file(folder.file(name), "[]");
  };
  const auto is_there = [&](const std::string& name) {
    return std::filesystem::exists(folder.file(name));
  };
  write_all();
  const auto removed = remove_dead_targets(folder.path(), self, [] {
    return std::set<std::string>{"7_1", "9", "12"};
  });
  ASSERT_TRUE(removed.ok());
  EXPECT_EQ(*removed, 2);
  EXPECT_TRUE(is_there(runs) && is_there(elsewhere));
  EXPECT_FALSE(is_there(over) || is_there(earlier_allocation));

  // If Slurm does not answer, the other jobs may be alive.
  write_all();
  const auto silent = remove_dead_targets(folder.path(), self, [] {
    return absl::StatusOr<std::set<std::string>>(absl::DeadlineExceededError("squeue"));
  });
  EXPECT_TRUE(absl::IsDeadlineExceeded(silent.status()));
  EXPECT_TRUE(is_there(runs) && is_there(over));
  EXPECT_FALSE(is_there(earlier_allocation));
}

}  // namespace
}  // namespace muster::cli
