// The memory that processes on this machine can still allocate.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace muster::trainer {

// The roots of the kernel's files. Tests inject others.
struct MachineRoots {
  std::string proc = "/proc";
  std::string cgroup = "/sys/fs/cgroup";
};

// Returns the smallest of MemAvailable and the remainders of this process's control groups
// (versions 2 and 1), in bytes. Droppable page cache of a group counts as free. nullopt if the
// kernel reports nothing.
std::optional<uint64_t> available_memory(const MachineRoots& roots);

}  // namespace muster::trainer
