// Collectives over device memory through a group that reads and writes host memory: each one copies
// through a buffer on the host. Used by ranks that share a GPU, which NCCL rejects, and by builds
// without NCCL.
#pragma once

#include <memory>

#include "trainer_core/base/device_memory.h"
#include "trainer_core/comm/comm.h"

namespace muster::trainer {

// Wraps `group`; host buffers pass through unchanged. If the group follows no computation, the
// caller must have waited for the work that writes the buffers; otherwise the call waits for it.
// Keeps one host buffer, as large as the largest collective so far. `memory` must outlive the
// result. Returns `group` itself if `memory` is the host's.
// host's the group itself comes back.
std::unique_ptr<ProcessGroup> staged_group(std::unique_ptr<ProcessGroup> group,
                                           const DeviceMemory& memory);

}  // namespace muster::trainer
