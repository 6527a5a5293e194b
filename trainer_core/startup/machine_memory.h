// The memory that processes on this machine can still allocate.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/control_groups.h"

namespace muster::trainer {

using muster::MachineRoots;

// Memory, and what sets its bound.
struct AvailableMemory {
  uint64_t bytes = 0;
  // The limit that bounds it, for messages: "/sys/fs/cgroup/job/memory.max (512 MiB)"; "" for
  // MemAvailable of the whole machine.
  std::string limit;
};

// Returns the smallest of MemAvailable and the remainders of this process's control groups
// (versions 2 and 1), in bytes. Droppable page cache of a group counts as free. nullopt if the
// kernel reports nothing.
std::optional<AvailableMemory> available_memory(const MachineRoots& roots);

// Returns " (limited by …)" for a message; "" if the machine itself is the bound.
std::string limit_note(const AvailableMemory& available);

}  // namespace muster::trainer
