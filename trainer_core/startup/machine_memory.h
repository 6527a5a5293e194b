// Determines the memory that this process can still allocate.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/control_groups.h"

namespace muster::trainer {

// Memory, and the limit that bounds it.
struct AvailableMemory {
  uint64_t bytes = 0;
  // The limit, for messages: "/sys/fs/cgroup/job/memory.max (512 MiB)"; empty: MemAvailable of the
  // machine.
  std::string limit;
};

// Returns the available memory: the minimum of MemAvailable and of what the limits of this
// process's control groups leave: memory.max and memory.high of version 2, memory.limit_in_bytes of
// version 1, of the group and all groups above it. Page cache of a group that can be dropped counts
// as free. Returns nullopt if the kernel reports none of these values.
std::optional<AvailableMemory> available_memory(const MachineRoots& roots);

// Returns " (limited by …)" for a message; empty if the machine itself is the bound.
std::string limit_note(const AvailableMemory& available);

}  // namespace muster::trainer
