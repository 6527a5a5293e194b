// A fake NCCL: ranks are threads of one process, and inputs are in a DeviceMemory when the device
// reaches the collective. Sums are computed in rank order. As with NCCL, no rank gets a
// communicator if that of one rank fails or is delayed, and the abort of a communicator ends its
// work on the device. Tests can make calls fail.
#pragma once

#include <atomic>
#include <functional>
#include <memory>

#include "trainer_core/base/device_memory.h"
#include "trainer_core/comm/nccl_api.h"

namespace muster::trainer {

// The library. At most one object may exist at a time in a process, because NCCL's functions have
// no context argument.
class FakeNccl {
 public:
  // Enqueues work on a stream of the device (DeviceQueue::handle).
  using Enqueue = std::function<void(void* stream, std::function<void()> work)>;
  FakeNccl(const DeviceMemory& memory, Enqueue enqueue);
  ~FakeNccl();
  FakeNccl(const FakeNccl&) = delete;
  FakeNccl& operator=(const FakeNccl&) = delete;

  // Returns a table of functions; each rank has its own. `version` is the version that the library
  // reports.
  std::shared_ptr<const NcclApi> api(int version = 22'809) const;

  std::atomic<bool> failing_id = false;    // rank 0 gets no id
  std::atomic<int> failing_init = -1;      // rank whose communicator fails
  std::atomic<NcclResult> init_error = 2;  // its error: ncclSystemError
  std::atomic<int> pending_init = -1;      // rank whose communicator is never ready
  std::atomic<bool> remote_error = false;  // communicators have an asynchronous error
  // The same, only for communicators of this number of ranks; 0: none.
  std::atomic<int> remote_error_of = 0;
  std::atomic<int> communicators = 0;  // communicators that exist now
  std::atomic<int> aborted = 0;
  std::atomic<int> calls = 0;
  std::atomic<int> max_ctas = 0;  // max_ctas of the newest communicator
};

}  // namespace muster::trainer
