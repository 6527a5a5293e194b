#include "worker/stacks/working_process.h"

#include <filesystem>

#include <gtest/gtest.h>

#include "tests/unit/temp_folder.h"

namespace muster::worker {
namespace {

class WorkingProcessTest : public ::testing::Test {
 protected:
  void process(pid_t pid, const std::string& waits_in, const std::string& children,
               bool has_threads = false) {
    const std::string tasks = folder.file("proc/" + std::to_string(pid) + "/task/");
    const std::string main = tasks + std::to_string(pid);
    std::filesystem::create_directories(main);
    write_file(main + "/wchan", waits_in);
    write_file(main + "/children", children);
    if (has_threads) std::filesystem::create_directories(tasks + std::to_string(pid + 1000));
  }
  pid_t of(pid_t pid) const { return working_process(folder.file("proc"), pid); }

  const TempFolder folder;
};

TEST_F(WorkingProcessTest, AShellThatWaitsForItsCommandIsSkipped) {
  process(7, "do_wait", "8 ");
  process(8, "do_wait", "9 ");
  process(9, "futex_wait_queue", "10 11 ");  // a program with data loaders
  process(10, "do_wait", "");
  EXPECT_EQ(of(7), 9);
  EXPECT_EQ(of(9), 9);
}

TEST_F(WorkingProcessTest, AWorkingOrBranchingProcessIsReturned) {
  process(7, "do_wait", "8 9 ");
  EXPECT_EQ(of(7), 7);
  process(20, "0", "21 ");
  EXPECT_EQ(of(20), 20);
  process(30, "do_wait", "31 ", /*has_threads=*/true);
  EXPECT_EQ(of(30), 30) << "its other threads may work";
  process(40, "do_wait", "41 ");
  EXPECT_EQ(of(40), 41) << "which is gone by now: its readers report that";
  EXPECT_EQ(of(99), 99);
  process(50, "do_wait", "50 ");
  EXPECT_EQ(of(50), 50) << "bounded";
}

}  // namespace
}  // namespace muster::worker
