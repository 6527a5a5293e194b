#include "trainer_core/base/machine_memory.h"

#include <filesystem>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "tests/unit/temp_folder.h"

namespace muster::trainer {
namespace {

class MachineMemory : public testing::Test {
 protected:
  void put(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(folder_.file(name)).parent_path());
    write_file(folder_.file(name), text);
  }
  std::optional<uint64_t> available() const {
    const auto found =
        available_memory({.proc = folder_.file("proc"), .cgroup = folder_.file("cgroup")});
    return found ? std::optional(found->bytes) : std::nullopt;
  }

  TempFolder folder_;
};

TEST_F(MachineMemory, IsUnknownWithoutKernelFiles) { EXPECT_EQ(available(), std::nullopt); }

TEST_F(MachineMemory, IsMemAvailableWithoutLimits) {
  put("proc/meminfo", "MemTotal:       4000 kB\nMemAvailable:   3000 kB\n");
  put("proc/self/cgroup", "0::/user.slice\n");
  put("cgroup/user.slice/memory.max", "max\n");
  put("cgroup/user.slice/memory.current", "100\n");
  EXPECT_EQ(available(), 3000U * 1024);
}

TEST_F(MachineMemory, IsBoundByTheTightestGroupOfVersion2) {
  put("proc/meminfo", "MemAvailable: 3000 kB\n");
  put("proc/self/cgroup", "0::/job.slice/step/task\n");
  put("cgroup/job.slice/memory.max", "1000000\n");
  put("cgroup/job.slice/memory.current", "600000\n");
  put("cgroup/job.slice/memory.stat", "anon 5\ninactive_file 100000\n");
  put("cgroup/job.slice/step/memory.max", "900000\n");
  put("cgroup/job.slice/step/memory.current", "50000\n");
  EXPECT_EQ(available(), 500'000U);
  put("cgroup/job.slice/step/memory.current", "950000\n");  // temporarily above its limit
  EXPECT_EQ(available(), 0U);
}

TEST_F(MachineMemory, IsBoundByTheRootInAContainer) {
  put("proc/meminfo", "MemAvailable: 3000 kB\n");
  put("proc/self/cgroup", "0::/../../docker/abc\n");
  put("cgroup/memory.max", "2000000\n");
  put("cgroup/memory.current", "500000\n");
  EXPECT_EQ(available(), 1'500'000U);
}

TEST_F(MachineMemory, IsBoundByTheMemoryGroupOfVersion1) {
  put("proc/meminfo", "MemAvailable: 3000 kB\n");
  put("proc/self/cgroup", "12:cpu,cpuacct:/a\n5:memory:/job\n");
  put("cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  put("cgroup/memory/memory.usage_in_bytes", "800000\n");
  put("cgroup/memory/job/memory.limit_in_bytes", "1000000\n");
  put("cgroup/memory/job/memory.usage_in_bytes", "300000\n");
  put("cgroup/memory/job/memory.stat", "total_inactive_file 100000\n");
  EXPECT_EQ(available(), 800'000U);
}

// Limits of version 2 in a tree /pod/rank, with 100,000 bytes used in each group.
struct LimitCase {
  std::string_view name;
  std::string pod_max, pod_high, rank_max, rank_high;  // empty: the file is absent
  uint64_t left = 0;
  std::string file;  // the file that the message names
};

TEST_F(MachineMemory, IsBoundByTheLowestOfMaxAndHighUpTheTree) {
  constexpr uint64_t kMachine = 3000 * 1024;
  const LimitCase cases[] = {
      {"no limit", "max", "max", "max", "max", kMachine, ""},
      {"max alone", "max", "max", "700000", "", 600'000, "/pod/rank/memory.max"},
      {"high alone", "max", "max", "max", "600000", 500'000, "/pod/rank/memory.high"},
      {"high below max", "max", "max", "700000", "500000", 400'000, "/pod/rank/memory.high"},
      {"max below high", "max", "max", "400000", "500000", 300'000, "/pod/rank/memory.max"},
      {"equal", "max", "max", "400000", "400000", 300'000, "/pod/rank/memory.max"},
      {"high of the parent", "max", "300000", "700000", "500000", 200'000, "/pod/memory.high"},
      {"max of the parent", "200000", "300000", "700000", "500000", 100'000, "/pod/memory.max"},
      {"high already exceeded", "max", "50000", "max", "max", 0, "/pod/memory.high"},
      {"high of zero", "max", "max", "max", "0", 0, "/pod/rank/memory.high"},
      {"above the machine", "max", "max", "max", "9000000000", kMachine, ""},
      {"not a number", "max", "max", "700000", "high", 600'000, "/pod/rank/memory.max"},
  };
  put("proc/meminfo", "MemAvailable: 3000 kB\n");
  put("proc/self/cgroup", "0::/pod/rank\n");
  put("cgroup/pod/memory.current", "100000\n");
  put("cgroup/pod/rank/memory.current", "100000\n");
  const auto put_or_remove = [&](const std::string& name, const std::string& text) {
    if (text.empty()) {
      std::filesystem::remove(folder_.file(name));
    } else {
      put(name, text + "\n");
    }
  };
  for (const LimitCase& one : cases) {
    SCOPED_TRACE(one.name);
    put_or_remove("cgroup/pod/memory.max", one.pod_max);
    put_or_remove("cgroup/pod/memory.high", one.pod_high);
    put_or_remove("cgroup/pod/rank/memory.max", one.rank_max);
    put_or_remove("cgroup/pod/rank/memory.high", one.rank_high);
    const auto found =
        available_memory({.proc = folder_.file("proc"), .cgroup = folder_.file("cgroup")});
    ASSERT_TRUE(found);
    EXPECT_EQ(found->bytes, one.left);
    EXPECT_EQ(found->limit.empty(), one.file.empty()) << found->limit;
    EXPECT_NE(found->limit.find(one.file), std::string::npos) << found->limit;
  }
}

// Limits of version 1 in a tree /pod/rank, with 100,000 bytes used in each group.
TEST_F(MachineMemory, IsBoundByTheLowestLimitOfVersion1UpTheTree) {
  constexpr uint64_t kMachine = 3000 * 1024;
  constexpr char kNone[] = "9223372036854771712";
  struct {
    std::string_view name;
    std::string pod, rank;
    uint64_t left;
  } const cases[] = {
      {"no limit", kNone, kNone, kMachine},
      {"the rank's", kNone, "700000", 600'000},
      {"the pod's", "400000", kNone, 300'000},
      {"the pod's is lower", "400000", "700000", 300'000},
      {"the rank's is lower", "700000", "400000", 300'000},
      {"already exceeded", kNone, "50000", 0},
      {"above the machine", kNone, "9000000000", kMachine},
      {"not a number", "700000", "max", 600'000},
  };
  put("proc/meminfo", "MemAvailable: 3000 kB\n");
  put("proc/self/cgroup", "5:memory:/pod/rank\n");
  for (const char* group : {"pod", "pod/rank"})
    put(std::string("cgroup/memory/") + group + "/memory.usage_in_bytes", "100000\n");
  for (const auto& one : cases) {
    SCOPED_TRACE(one.name);
    put("cgroup/memory/pod/memory.limit_in_bytes", one.pod + "\n");
    put("cgroup/memory/pod/rank/memory.limit_in_bytes", one.rank + "\n");
    EXPECT_EQ(available(), one.left);
  }
}

TEST_F(MachineMemory, IgnoresTheSoftLimitOfVersion1) {
  put("proc/meminfo", "MemAvailable: 3000 kB\n");
  put("proc/self/cgroup", "5:memory:/job\n");
  put("cgroup/memory/job/memory.limit_in_bytes", "1000000\n");
  put("cgroup/memory/job/memory.soft_limit_in_bytes", "200000\n");
  put("cgroup/memory/job/memory.usage_in_bytes", "300000\n");
  EXPECT_EQ(available(), 700'000U);
}

}  // namespace
}  // namespace muster::trainer
