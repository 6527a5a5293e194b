// Collectives over device memory by NCCL. The wrapped group provides what NCCL lacks (host buffers,
// the elementwise maximum, bf16 sums in fp32) and the first exchange of messages.
//
//   first collective: compare versions ──▶ broadcast rank 0's id ──▶ create the communicator within
//                     a bounded time ──▶ agree on which ranks have none
//   each collective:  enqueue on the group's queue ──▶ monitor until the device has done it ──▶
//                     complete on the progress page
//
// The monitor polls NCCL for errors and the group for abort(). Either one destroys the communicator
// and fails the rank's collective with Unavailable. A failure of another of the rank's groups, also
// in a collective of host buffers, has the same effect, because peers that miss the rank there may
// not reach this collective; every group then returns that first failure. NCCL rounds bf16 sums at
// each hop; other groups round once.
//
// Without a computation to follow, the calling thread monitors the collective. If the group follows
// a computation (ProcessGroup::follow), the device waits instead of the host:
//
//   computation  … mark ────────────────▶ waits for done …    a thread of the group, in order:
//   own queue         ▶ waits ▶ collective ▶ done             mark: started
//                                                             done: completed, and its duration
//
// Monitoring needs its own thread: the caller may block inside CUDA for this very collective, and
// someone must destroy the communicator when a peer is gone. The page shows a collective as
// enqueued when it is called, and as started and completed when the device reports so. A rank runs
// at most kOutstandingMax collectives of a group ahead of its device.
//
// Several groups of a rank may run kernels on its device at once, and these kernels wait for peers.
// No deadlock arises. Within a channel (process_groups.h) collectives run one after the other, on
// the device or on the channel's thread, in the order of the pass, which is the same on all ranks.
// Between channels the host only waits for calls that are earlier in that order. All concurrent
// kernels fit on a device (nccl_blocks_max). NCCL therefore needs no launch order from us, and
// NCCL_LAUNCH_ORDER_IMPLICIT must stay unset: channels are threads, whose relative order differs
// between ranks.
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
  std::chrono::milliseconds connect_timeout{120'000};  // to create a communicator
  std::chrono::milliseconds timeout = kRoundTimeout;   // for a collective, once it has started
  // Thread blocks of a kernel, the same on all ranks; 0, and before NCCL 2.17: NCCL decides.
  int blocks_max = 0;
  // Shared by all groups of one rank.
  std::shared_ptr<FirstFailure> failure = std::make_shared<FirstFailure>();
};

// The page's ring keeps the names of the last kProgressRingLength collectives of all groups. The
// one in which a device hangs has to be among them.
constexpr size_t kOutstandingMax = 8;

// `group` has the same ranks and serves host buffers and staged ones (staged_group.h). Sends no
// message until the first collective of device buffers. `page` (may be null) and `memory` must
// outlive it. The page lists it separately, as "fsdp nccl", with `lowest_member` as a rank of the
// world.
std::unique_ptr<ProcessGroup> nccl_group(std::unique_ptr<ProcessGroup> group,
                                         const NcclOptions& options, const DeviceMemory& memory,
                                         ProgressWriter* page, uint32_t lowest_member);

}  // namespace muster::trainer
