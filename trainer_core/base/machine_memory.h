// Determines the memory that this process can still allocate.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/process/control_groups.h"

namespace muster::trainer {

// Memory, and the limit that bounds it.
struct AvailableMemory {
  uint64_t bytes = 0;
  // The limit, for messages: "/sys/fs/cgroup/job/memory.max (512 MiB)"; empty: MemAvailable of the
  // machine.
  std::string limit;
};

// Returns the available memory: the minimum of MemAvailable and of the unused part of each limit of
// this process's control group and its ancestors. The limits are memory.max and memory.high
// (version 2) and memory.limit_in_bytes (version 1). A group's page cache that can be dropped
// counts as unused. Returns nullopt if the kernel reports none of these values.
std::optional<AvailableMemory> available_memory(const MachineRoots& roots);

// Returns " (limited by …)" for a message; empty if the machine itself is the bound.
std::string limit_note(const AvailableMemory& available);

}  // namespace muster::trainer
