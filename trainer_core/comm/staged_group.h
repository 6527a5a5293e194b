// Collectives of device buffers through a group that supports only host buffers: each collective
// copies its data through a host buffer. They are used by ranks that share a GPU, which NCCL does
// not support, and by builds without NCCL.
#pragma once

#include <memory>

#include "trainer_core/base/device_memory.h"
#include "trainer_core/comm/comm.h"

namespace muster::trainer {

// Returns a group that accepts buffers in `memory` and host buffers; the latter are passed to
// `group` unchanged. Returns `group` itself if `memory` is host memory. If the group follows a
// computation (ProcessGroup::follow), a call blocks until the work that writes its buffers is done;
// if it follows none, the caller must have waited for this work. The result owns one host buffer,
// as large as the largest collective so far. `memory` must outlive the result.
std::unique_ptr<ProcessGroup> staged_group(std::unique_ptr<ProcessGroup> group,
                                           const DeviceMemory& memory);

}  // namespace muster::trainer
