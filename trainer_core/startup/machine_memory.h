// How much memory processes on this machine may still take.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace muster::trainer {

// Where the kernel's files are. Tests have others.
struct MachineRoots {
  std::string proc = "/proc";
  std::string cgroup = "/sys/fs/cgroup";
};

// The smallest of MemAvailable and what the limits of this process's control groups (versions 2 and 1) leave. A group's page
// cache that can be dropped counts as free. None when the kernel does not say.
std::optional<uint64_t> available_memory(const MachineRoots& roots);

}  // namespace muster::trainer
