#include "common/process/usable_cpus.h"

#include <sched.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/temp_folder.h"

namespace muster {
namespace {

// The kernel's files of a machine or container, below a folder.
struct QuotaCase {
  const char* name;
  std::map<std::string, std::string> files;
  std::optional<double> quota;
  int32_t of_64;  // usable CPUs when the mask has 64
};

const QuotaCase kQuotaCases[] = {
    {"half of a core, version 2",
     {{"proc/self/cgroup", "0::/\n"}, {"cgroup/cpu.max", "50000 100000\n"}},
     0.5,
     1},
    {"half of a core, version 1",
     {{"proc/self/cgroup", "4:cpu,cpuacct:/\n"},
      {"cgroup/cpu/cpu.cfs_quota_us", "50000\n"},
      {"cgroup/cpu/cpu.cfs_period_us", "100000\n"}},
     0.5,
     1},
    {"no quota, version 2",
     {{"proc/self/cgroup", "0::/user.slice\n"}, {"cgroup/user.slice/cpu.max", "max 100000\n"}},
     std::nullopt,
     64},
    {"no quota, version 1",
     {{"proc/self/cgroup", "1:cpu:/\n"},
      {"cgroup/cpu/cpu.cfs_quota_us", "-1\n"},
      {"cgroup/cpu/cpu.cfs_period_us", "100000\n"}},
     std::nullopt,
     64},
    {"the smallest of a group and its ancestors",
     {{"proc/self/cgroup", "0::/pods/a/b\n"},
      {"cgroup/pods/cpu.max", "3200000 100000\n"},
      {"cgroup/pods/a/cpu.max", "250000 100000\n"},
      {"cgroup/pods/a/b/cpu.max", "400000 100000\n"}},
     2.5,
     2},
    {"a path that only the host has",
     {{"proc/self/cgroup", "0::/../../kubepods/pod7\n"}, {"cgroup/cpu.max", "300000 100000\n"}},
     3,
     3},
    {"version 1 in a container with the host's path",
     {{"proc/self/cgroup", "9:memory:/docker/7\n3:cpu,cpuacct:/docker/7\n"},
      {"cgroup/cpu,cpuacct/cpu.cfs_quota_us", "150000\n"},
      {"cgroup/cpu,cpuacct/cpu.cfs_period_us", "50000\n"}},
     3,
     3},
    {"version 2 beside version 1",
     {{"proc/self/cgroup", "2:memory:/a\n0::/a\n"}, {"cgroup/unified/a/cpu.max", "200000 50000\n"}},
     4,
     4},
    {"a quota above the mask",
     {{"proc/self/cgroup", "0::/\n"}, {"cgroup/cpu.max", "9600000 100000\n"}},
     96,
     64},
    {"another controller's group",
     {{"proc/self/cgroup", "5:cpuset:/a\n"},
      {"cgroup/cpuset/a/cpu.cfs_quota_us", "1000\n"},
      {"cgroup/cpuset/a/cpu.cfs_period_us", "100000\n"}},
     std::nullopt,
     64},
    {"damaged files",
     {{"proc/self/cgroup", "0::/\nbroken\n::\n"}, {"cgroup/cpu.max", "50000 0\n"}},
     std::nullopt,
     64},
    {"an empty file", {{"proc/self/cgroup", "0::/\n"}, {"cgroup/cpu.max", ""}}, std::nullopt, 64},
    {"no control groups", {}, std::nullopt, 64},
};

TEST(UsableCpus, QuotasOfControlGroupsBound) {
  for (const QuotaCase& one : kQuotaCases) {
    const TempFolder folder;
    for (const auto& [path, text] : one.files) {
      std::filesystem::create_directories(std::filesystem::path(folder.file(path)).parent_path());
      write_file(folder.file(path), text);
    }
    const auto quota = cpu_quota({.proc = folder.file("proc"), .cgroup = folder.file("cgroup")});
    EXPECT_EQ(quota.has_value(), one.quota.has_value()) << one.name;
    if (quota && one.quota) {
      EXPECT_DOUBLE_EQ(quota->cpus, *one.quota) << one.name;
      EXPECT_TRUE(std::filesystem::exists(quota->file)) << one.name << ": " << quota->file;
    }
    EXPECT_EQ(usable_cpus(64, quota), one.of_64) << one.name;
  }
}

TEST(UsableCpus, IsAtLeastOneAndAtMostTheMask) {
  EXPECT_EQ(usable_cpus(1, CpuQuota{0.01, ""}), 1);
  EXPECT_EQ(usable_cpus(8, CpuQuota{7.99, ""}), 7);
  EXPECT_EQ(usable_cpus(8, CpuQuota{8.5, ""}), 8);
  EXPECT_EQ(usable_cpus(0, std::nullopt), 1);
}

TEST(UsableCpus, TheMaskIsThatOfTheThread) {
  cpu_set_t own, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof(own), &own), 0);
  EXPECT_EQ(cpus_in_mask(), CPU_COUNT(&own));
  CPU_ZERO(&one);
  CPU_SET(sched_getcpu(), &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  EXPECT_EQ(cpus_in_mask(), 1);
  EXPECT_EQ(sched_setaffinity(0, sizeof(own), &own), 0);
}

}  // namespace
}  // namespace muster
