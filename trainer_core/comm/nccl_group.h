// Collectives of numbers in a device's memory by NCCL. What NCCL has not (numbers of the host's, the largest of each element, sums of bf16
// in fp32) and the first meeting go through the group that it is made over.
//
//   first collective: versions compared ──▶ rank 0's id to all ──▶ communicator, within a bounded time ──▶ who has none?
//   collective: called on the group's own queue ──▶ looked after until the device has done it ──▶ complete on the progress page
//
// Whoever looks after it asks NCCL for errors and the group for abort(): either ends the communicator, and the rank's collective with
// Unavailable. So does the failure of another of the rank's groups, of host's numbers, too, because peers that miss the rank there may not
// come here either: what is told then, by each of the groups, is that failure. NCCL rounds sums of bf16 at each hop, where other groups
// round once.
//
// Without a computation to follow the calling thread does so. In a computation's order (ProcessGroup::follow) the device waits, and not the
// host:
//
//   computation   … mark ──────────────────▶ waits for done …        a thread of the group's takes one after the other:
//   own queue          ▶ waits ▶ collective ▶ done                   mark: started; done: completed, and how long it took
//
// It has to be a thread of its own: who calls may stand in CUDA by then, waiting for just that collective, and somebody has to end the
// communicator when a peer is gone. On the page a collective is enqueued when it is called, and started and completed when the device says
// so. A rank is some kOutstandingMax collectives of a group ahead of its device at most.
//
// Several groups of a rank may be on its device at one time, whose kernels wait for peers. Nobody waits crosswise: within a lane
// (process_groups.h) one collective follows the other, on the device or on the lane's thread, in the order of the pass, which is the same
// on all ranks; between lanes the host waits for what was called earlier in that order, never for what comes later; and all
// kernels that there are at one time have room on a device (nccl_blocks_max). So NCCL needs no order of launches from us, and NCCL_LAUNCH_ORDER_IMPLICIT must stay
// unset: lanes are threads, and which of two calls first is not the same on all ranks.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "common/progress_page.h"
#include "trainer_core/base/device_memory.h"
#include "trainer_core/comm/comm.h"
#include "trainer_core/comm/first_failure.h"
#include "trainer_core/comm/nccl_api.h"
#include "trainer_core/comm/transport.h"

namespace muster::trainer {

struct NcclOptions {
  std::shared_ptr<const NcclApi> api;                  // null: no NCCL
  std::chrono::milliseconds connect_timeout{120'000};  // of a communicator
  std::chrono::milliseconds timeout = kRoundTimeout;   // of a collective, once it has started
  int blocks_max =
      0;  // thread blocks of a kernel, the same on all ranks; 0, and before 2.17: as NCCL decides
  // Of all groups that are made with it: those of one rank.
  std::shared_ptr<FirstFailure> failure = std::make_shared<FirstFailure>();
};

// The page's ring keeps the names of the last kProgressRingLength collectives of all groups: what a device stands in has to be among them.
constexpr size_t kOutstandingMax = 8;

// `group`: of the same ranks, for the host's numbers and staged ones (staged_group.h). Takes no message until the first collective of the
// device's numbers. `page` (may be null) and `memory` outlive it; on the page it has a place of its own, "fsdp nccl", with
// `lowest_member` of the world.
std::unique_ptr<ProcessGroup> nccl_group(std::unique_ptr<ProcessGroup> group,
                                         const NcclOptions& options, const DeviceMemory& memory,
                                         ProgressWriter* page, uint32_t lowest_member);

}  // namespace muster::trainer
