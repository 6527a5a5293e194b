// Collectives of numbers in a device's memory over a group that reads and writes the host's: each goes through a copy on the host. For
// ranks that share a GPU, which NCCL refuses, and for builds without it.
#pragma once

#include <memory>

#include "trainer_core/base/device_memory.h"
#include "trainer_core/comm/comm.h"

namespace muster::trainer {

// The group as `group`'s callers know it; numbers of the host's go through as they are. Where it follows no computation the caller has
// waited for what writes the numbers that it gives; else the call waits. Keeps one buffer of the host's memory, as large as the largest collective was. `memory` outlives it; where that is the
// host's the group itself comes back.
std::unique_ptr<ProcessGroup> staged_group(std::unique_ptr<ProcessGroup> group,
                                           const DeviceMemory& memory);

}  // namespace muster::trainer
