// The number of threads that can compute at once: the machine's CPUs, limited by the CPU mask and
// the quotas of control groups. Every choice of a number of threads starts from it. Thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/process/control_groups.h"

namespace muster {

// A limit of CPU time.
struct CpuQuota {
  double cpus = 0;   // 0.5: half of one CPU's time
  std::string file;  // the kernel's file that sets it: cpu.max, or cpu.cfs_quota_us
};

// Returns the smallest quota of this process's control groups; nullopt: no group has one.
std::optional<CpuQuota> cpu_quota(const MachineRoots& roots = {});

// Returns the number of CPUs in the calling thread's mask, on machines of any size. At least 1.
int32_t cpus_in_mask();

// Returns the smaller of `in_mask` and the quota, at least 1. The quota is rounded down: the kernel
// stops all threads of a group that has used up its quota until the next period. With more threads
// than whole CPUs, threads stop in the middle of their work, and the others wait for them.
int32_t usable_cpus(int32_t in_mask, const std::optional<CpuQuota>& quota);

// Returns the number for the calling thread's mask and this process's quota.
int32_t usable_cpus(const MachineRoots& roots = {});

}  // namespace muster
