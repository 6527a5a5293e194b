// A process group whose collectives of device buffers use NCCL. It wraps another group, which
// provides what NCCL lacks (collectives of host buffers, the elementwise maximum, and sums of bf16
// in fp32) and the messages with which communicators are created.
//
//   first collective: compare versions ──▶ broadcast rank 0's id ──▶ create the communicator within
//                     a bounded time ──▶ agree on the ranks that have no communicator
//   each collective:  enqueue on the group's queue ──▶ monitor until the device is done ──▶ publish
//                     the end on the progress page
//
// The monitor polls for errors of NCCL, for abort(), and for a failure of any other group of the
// rank, also in collectives of host buffers: peers that wait for this rank there may never reach
// this collective. In each case the monitor destroys the communicator, and the collective fails
// with Unavailable; after a failure of another group, every group returns this first failure. NCCL
// rounds bf16 sums at every hop, other groups only once.
//
// If the group follows no computation (ProcessGroup::follow), the calling thread monitors the
// collective. If it follows one, the device waits instead of the calling thread:
//
//   computation  … mark ────────────────▶ waits for done …    the monitor thread publishes the
//   own queue         ▶ waits ▶ collective ▶ done             start at `mark`, and the end with
//                                                             its duration at `done`
//
// The monitor needs its own thread, because the caller may block inside CUDA until this collective
// is done, and the communicator must be destroyed if a peer is gone. The page shows a collective as
// enqueued when it is called, and as started and completed when the device has done so. A rank may
// enqueue at most kOutstandingMax collectives of a group that its device has not completed.
//
// Several groups of a rank may run kernels on its device at once, and these kernels wait for peers.
// This cannot deadlock, for three reasons. Within a channel (process_groups.h), collectives run one
// after the other, on the device or on the channel's thread, in the order of the pass, which is the
// same on all ranks. Between channels, the host waits only for calls that are earlier in this
// order. And all concurrent kernels fit on the device (nccl_blocks_max). So NCCL needs no common
// launch order. NCCL_LAUNCH_ORDER_IMPLICIT must not be set: channels are threads, whose relative
// order differs between ranks.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "common/progress/progress_page.h"
#include "trainer_core/base/device_memory.h"
#include "trainer_core/comm/comm.h"
#include "trainer_core/comm/first_failure.h"
#include "trainer_core/comm/nccl_api.h"
#include "trainer_core/comm/transport.h"

namespace muster::trainer {

// The options of groups that use NCCL.
struct NcclOptions {
  std::shared_ptr<const NcclApi> api;                  // null: no NCCL
  std::chrono::milliseconds connect_timeout{120'000};  // maximum time to create a communicator
  // Maximum time of a collective after its start.
  std::chrono::milliseconds timeout = kRoundTimeout;
  // Maximum number of thread blocks of a kernel, the same on all ranks. 0: NCCL decides. Ignored
  // before NCCL 2.17.
  int blocks_max = 0;
  // The first failure, shared by all groups of a rank.
  std::shared_ptr<FirstFailure> failure = std::make_shared<FirstFailure>();
};

// The maximum number of enqueued collectives of a group. The ring on the progress page has the
// names of the last kProgressRingLength collectives of all groups; this bound ensures that the
// collective in which a device hangs is among them.
constexpr size_t kOutstandingMax = 8;

// Returns a group that uses NCCL for device buffers and `group` for everything else. Requires that
// `group` supports host buffers and device buffers (staged_group.h). Sends no message before the
// first collective of device buffers. `page`, which may be null, and `memory` must outlive the
// result. The page lists the group's NCCL collectives separately, as "fsdp nccl"; `lowest_member`
// is the world rank that identifies the group there.
std::unique_ptr<ProcessGroup> nccl_group(std::unique_ptr<ProcessGroup> group,
                                         const NcclOptions& options, const DeviceMemory& memory,
                                         ProgressWriter* page, uint32_t lowest_member);

}  // namespace muster::trainer
