// Determines the memory that this process can still allocate.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace muster::trainer {

// The folders of the kernel's files. Tests use other folders.
struct MachineRoots {
  std::string proc = "/proc";
  std::string cgroup = "/sys/fs/cgroup";
};

// Returns the available memory in bytes: the minimum of MemAvailable and of what the limits of this
// process's control groups (versions 2 and 1) leave. Page cache of a group that can be dropped
// counts as free. Returns nullopt if the kernel reports none of these values.
std::optional<uint64_t> available_memory(const MachineRoots& roots);

}  // namespace muster::trainer
