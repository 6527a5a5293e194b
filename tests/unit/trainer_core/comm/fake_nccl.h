// A fake NCCL: ranks are threads of one process, and inputs are in a DeviceMemory when the device
// reaches the collective. Sums are in rank order. As with NCCL, a rank whose communicator fails or
// is delayed leaves all others without one, and aborting a communicator ends its work on the
// device. Tests can make calls fail.
#pragma once

#include <atomic>
#include <functional>
#include <memory>

#include "trainer_core/base/device_memory.h"
#include "trainer_core/comm/nccl_api.h"

namespace muster::trainer {

// At most one exists at a time in a process: NCCL's functions have no context argument.
class FakeNccl {
 public:
  // Enqueues work on a device's stream (DeviceQueue::handle).
  using Enqueue = std::function<void(void* stream, std::function<void()> work)>;
  FakeNccl(const DeviceMemory& memory, Enqueue enqueue);
  ~FakeNccl();
  FakeNccl(const FakeNccl&) = delete;
  FakeNccl& operator=(const FakeNccl&) = delete;

  // Each rank has its own; `version` is the reported library version.
  std::shared_ptr<const NcclApi> api(int version = 22'809) const;

  std::atomic<bool> failing_id = false;    // rank 0 gets no id
  std::atomic<int> failing_init = -1;      // rank whose communicator fails
  std::atomic<NcclResult> init_error = 2;  // and how: ncclSystemError
  std::atomic<int> pending_init = -1;      // rank whose communicator is never ready
  std::atomic<bool> remote_error = false;  // the asynchronous error of communicators
  std::atomic<int> remote_error_of = 0;    // the same of those alone that have so many ranks
  std::atomic<int> communicators = 0;      // that are there now
  std::atomic<int> aborted = 0;
  std::atomic<int> calls = 0;
  std::atomic<int> max_ctas = 0;  // what the newest communicator was made with
};

}  // namespace muster::trainer
