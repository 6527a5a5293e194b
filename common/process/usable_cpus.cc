#include "common/process/usable_cpus.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <fstream>

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>

namespace muster {
namespace {

// The kernel's limit of CPUs is 8192; a larger mask is refused for other reasons.
constexpr int kMaskCpusMax = 1 << 16;

// Returns the quota of a file of version 2: "50000 100000", or "max 100000".
std::optional<double> quota_of_v2(const std::string& path) {
  std::ifstream file(path);
  std::string quota, period;
  uint64_t quota_us = 0, period_us = 0;
  if (!(file >> quota >> period) || !absl::SimpleAtoi(quota, &quota_us) ||
      !absl::SimpleAtoi(period, &period_us) || period_us == 0)
    return std::nullopt;
  return static_cast<double>(quota_us) / static_cast<double>(period_us);
}

// Version 1 writes -1 for no quota, which is no number here.
std::optional<double> quota_of_v1(const std::string& folder) {
  const auto quota_us = number_in_file(folder + "/cpu.cfs_quota_us");
  const auto period_us = number_in_file(folder + "/cpu.cfs_period_us");
  if (!quota_us || !period_us || *period_us == 0) return std::nullopt;
  return static_cast<double>(*quota_us) / static_cast<double>(*period_us);
}

}  // namespace

std::optional<CpuQuota> cpu_quota(const MachineRoots& roots) {
  std::optional<CpuQuota> smallest;
  for (const ControlGroup& group : control_groups(roots, "cpu")) {
    const std::string file =
        absl::StrCat(group.folder, group.is_v2 ? "/cpu.max" : "/cpu.cfs_quota_us");
    const auto cpus = group.is_v2 ? quota_of_v2(file) : quota_of_v1(group.folder);
    if (cpus && *cpus > 0 && (!smallest || *cpus < smallest->cpus))
      smallest = CpuQuota{*cpus, file};
  }
  return smallest;
}

int32_t cpus_in_mask() {
  for (int cpus = CPU_SETSIZE; cpus <= kMaskCpusMax; cpus *= 2) {
    cpu_set_t* mask = CPU_ALLOC(static_cast<size_t>(cpus));
    if (mask == nullptr) break;
    const size_t bytes = CPU_ALLOC_SIZE(static_cast<size_t>(cpus));
    CPU_ZERO_S(bytes, mask);
    const bool is_read = sched_getaffinity(0, bytes, mask) == 0;
    const int error = errno;
    const int count = is_read ? CPU_COUNT_S(bytes, mask) : 0;
    CPU_FREE(mask);
    if (is_read) return std::max(1, count);
    if (error != EINVAL) break;  // EINVAL: the kernel's masks are larger
  }
  return static_cast<int32_t>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
}

int32_t usable_cpus(int32_t in_mask, const std::optional<CpuQuota>& quota) {
  if (!quota || quota->cpus >= in_mask) return std::max(1, in_mask);
  return std::max(1, static_cast<int32_t>(std::floor(quota->cpus)));
}

int32_t usable_cpus(const MachineRoots& roots) {
  return usable_cpus(cpus_in_mask(), cpu_quota(roots));
}

}  // namespace muster
