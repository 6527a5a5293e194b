// Collectives of numbers in a device's memory by NCCL. What NCCL has not (numbers of the host's, the largest of each element, sums of bf16
// in fp32) and the first meeting go through the group that it is made over.
//
//   first collective: versions compared ──▶ rank 0's id to all ──▶ communicator, within a bounded time ──▶ who has none?
//   collective: called on the rank's own queue ──▶ looked after until the queue is idle ──▶ complete on the progress page
//
// While it waits a rank asks NCCL for errors and its group for abort(): either ends the communicator, and the rank's collective with
// Unavailable. NCCL rounds sums of bf16 at each hop, where other groups round once.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "common/progress_page.h"
#include "trainer_core/base/device_memory.h"
#include "trainer_core/comm/comm.h"
#include "trainer_core/comm/nccl_api.h"
#include "trainer_core/comm/transport.h"

namespace muster::trainer {

struct NcclOptions {
  std::shared_ptr<const NcclApi> api;                  // null: no NCCL
  std::chrono::milliseconds connect_timeout{120'000};  // of a communicator
  std::chrono::milliseconds timeout = kRoundTimeout;   // of a collective
};

// `group`: of the same ranks, for the host's numbers and staged ones (staged_group.h). Takes no message until the first collective of the
// device's numbers. `page` (may be null) and `memory` outlive it; on the page it has a place of its own, "fsdp nccl", with
// `lowest_member` of the world.
std::unique_ptr<ProcessGroup> nccl_group(std::unique_ptr<ProcessGroup> group,
                                         const NcclOptions& options, const DeviceMemory& memory,
                                         ProgressWriter* page, uint32_t lowest_member);

}  // namespace muster::trainer
