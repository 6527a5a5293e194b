#include "trainer_core/startup/machine_memory.h"

#include <filesystem>

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

}  // namespace
}  // namespace muster::trainer
