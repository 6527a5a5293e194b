#include "worker/stacks/process_evidence.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>

#include "tests/unit/mutate.h"
#include "tests/unit/temp_folder.h"
#include "tests/unit/worker/stacks/subject.h"

namespace muster::worker {
namespace {

TEST(ProcFilesTest, NamesMayHaveParenthesesAndControls) {
  std::string rest = " S 1";
  for (int field = 5; field <= 52; ++field) rest += " " + std::to_string(field);
  const auto stat = parse_task_stat("17 (a) R \x1b(b))" + rest + "\n");
  ASSERT_TRUE(stat.has_value());
  EXPECT_EQ(stat->name, "a) R \\x1b(b)");
  EXPECT_EQ(stat->state, 'S');
  EXPECT_EQ(stat->start_ticks, 22);
  EXPECT_EQ(stat->stack_start, 28);
  EXPECT_TRUE(stat->has_memory);
  EXPECT_EQ(stat->cpu_ticks, 14 + 15);
  EXPECT_EQ(stat->children_cpu_ticks, 16 + 17);
  std::string dying = rest;
  dying.replace(dying.find(" 23 "), 4, " 0 ");
  EXPECT_FALSE(parse_task_stat("17 (x)" + dying)->has_memory);
  std::string broken = rest;
  broken.replace(broken.find(" 16 "), 4, " x ");
  EXPECT_FALSE(parse_task_stat("17 (x)" + broken).has_value());
  EXPECT_FALSE(parse_task_stat("").has_value());
  EXPECT_FALSE(parse_task_stat("17 (x) S 1 2 3").has_value());
  EXPECT_FALSE(parse_task_stat(")(").has_value());
  Mutator mutator(1);
  for (int i = 0; i < 2000; ++i) parse_task_stat(mutator.mutate("17 (x)" + rest));
}

TEST(ProcessEvidenceTest, StateAndWaitChannelOfARealProcess) {
  const Subject subject("nested");
  subject.kill(SIGSTOP);
  ASSERT_TRUE(eventually([&] { return subject.state() == 'T'; }));
  RankEvidence evidence;
  read_process_state("/proc", subject.pid(), evidence);
  EXPECT_EQ(evidence.process_state, 'T');
  EXPECT_EQ(evidence.tracer_pid, 0);
  read_process_state("/proc", -1, evidence);
  EXPECT_EQ(evidence.process_state, '?');
  EXPECT_EQ(evidence.wait_channel, "");
}

class ControlGroupTest : public ::testing::Test {
 protected:
  void cgroup_of_7(const std::string& lines) {
    std::filesystem::create_directories(folder.file("proc/7"));
    write_file(folder.file("proc/7/cgroup"), lines);
  }
  void file(const std::string& path, const std::string& content) {
    std::filesystem::create_directories(std::filesystem::path(folder.file(path)).parent_path());
    write_file(folder.file(path), content);
  }
  OomKillCounter counter() const {
    return OomKillCounter::of(folder.file("proc"), folder.file("cgroup"), 7);
  }
  MemoryUse memory_use() const {
    return read_memory_use(folder.file("proc"), folder.file("cgroup"), 7);
  }

  const TempFolder folder;
};

TEST_F(ControlGroupTest, KillsOfVersionTwo) {
  cgroup_of_7("0::/jobs/7\n");
  file("cgroup/jobs/7/memory.events", "low 0\nhigh 0\nmax 9\noom 2\noom_kill 0\n");
  const OomKillCounter kills = counter();
  EXPECT_EQ(kills.count(), 0);
  file("cgroup/jobs/7/memory.events",
       "low 0\nhigh 0\nmax 9\noom 2\noom_kill 3\noom_group_kill 1\n");
  EXPECT_EQ(kills.count(), 3);
  std::filesystem::remove_all(folder.file("cgroup/jobs"));
  EXPECT_EQ(kills.count(), -1);
}

TEST_F(ControlGroupTest, CountsKillsInVersionOneWithAnEmptyVersionTwo) {
  cgroup_of_7("9:name=systemd:/\n4:cpu,memory:/box/a:b\n0::/\n");
  file("cgroup/memory/box/a:b/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 5\n");
  EXPECT_EQ(counter().count(), 5);
}

TEST_F(ControlGroupTest, TheLimitIsTheTightestOnTheWayToTheRoot) {
  cgroup_of_7("0::/jobs/7/rank\n");
  file("cgroup/jobs/7/rank/memory.events", "oom_kill 0\n");
  const OomKillCounter kills = counter();
  EXPECT_EQ(kills.limit(), 0U);
  file("cgroup/jobs/7/rank/memory.max", "max\n");
  file("cgroup/jobs/7/memory.max", "314572800\n");
  file("cgroup/jobs/memory.max", "629145600\n");
  EXPECT_EQ(kills.limit(), uint64_t{300} << 20);
  file("cgroup/memory.max", "1048576\n");
  EXPECT_EQ(kills.limit(), uint64_t{1} << 20);
  EXPECT_EQ(OomKillCounter().limit(), 0U);
  cgroup_of_7("4:memory:/box\n");
  file("cgroup/memory/box/memory.oom_control", "oom_kill 5\n");
  file("cgroup/memory/box/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(counter().limit(), 0U) << "version 1 writes no limit as a huge number";
  file("cgroup/memory/memory.limit_in_bytes", "67108864\n");
  EXPECT_EQ(counter().limit(), uint64_t{64} << 20);
}

TEST_F(ControlGroupTest, NoKillsToCount) {
  EXPECT_EQ(counter().count(), -1);
  cgroup_of_7("0::/../../etc\nbroken\n");
  EXPECT_EQ(counter().count(), -1);
  EXPECT_EQ(OomKillCounter().count(), -1);
}

TEST_F(ControlGroupTest, MemoryIsThatOfTheTightestGroupWithoutPageCache) {
  EXPECT_EQ(memory_use(), MemoryUse());
  cgroup_of_7("0::/pods/7/rank\n");
  file("cgroup/pods/7/rank/memory.max", "max\n");
  file("cgroup/pods/7/rank/memory.current", "1000\n");
  EXPECT_EQ(memory_use(), MemoryUse()) << "no limit";
  file("cgroup/pods/7/memory.max", "2000\n");
  file("cgroup/pods/7/memory.high", "max\n");
  file("cgroup/pods/7/memory.current", "1990\n");
  file("cgroup/pods/7/memory.stat", "anon 1500\nfile 490\ninactive_file 400\nactive_file 40\n");
  EXPECT_EQ(memory_use(), (MemoryUse{1550, 2000}));
  EXPECT_FALSE(memory_use().is_exhausted());
  file("cgroup/pods/7/memory.high", "1560\n");
  EXPECT_EQ(memory_use(), (MemoryUse{1550, 1560}));
  EXPECT_TRUE(memory_use().is_exhausted());
}

TEST_F(ControlGroupTest, MemoryOfVersionOne) {
  cgroup_of_7("9:name=systemd:/\n4:memory:/box\n0::/\n");
  file("cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  file("cgroup/memory/box/memory.limit_in_bytes", "1000\n");
  file("cgroup/memory/box/memory.usage_in_bytes", "990\n");
  file("cgroup/memory/box/memory.stat",
       "inactive_file 5\ntotal_inactive_file 100\ntotal_active_file 90\n");
  EXPECT_EQ(memory_use(), (MemoryUse{800, 1000}));
}

}  // namespace
}  // namespace muster::worker
