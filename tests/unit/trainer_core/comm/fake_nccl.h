// NCCL for tests: ranks are threads of one process, and what they bring together lies in a DeviceMemory, by the time that the device comes
// to it. Sums are made in the order of ranks. As with NCCL a rank whose communicator fails, or is held up, leaves all others without one,
// and who aborts its own ends what the device does for it. A test may let calls fail.
#pragma once

#include <atomic>
#include <functional>
#include <memory>

#include "trainer_core/base/device_memory.h"
#include "trainer_core/comm/nccl_api.h"

namespace muster::trainer {

// One at a time in a process: NCCL's functions have no place for a context.
class FakeNccl {
 public:
  // Tells a device's stream (DeviceQueue::handle) what to do.
  using Tell = std::function<void(void* stream, std::function<void()> work)>;
  FakeNccl(const DeviceMemory& memory, Tell tell);
  ~FakeNccl();
  FakeNccl(const FakeNccl&) = delete;
  FakeNccl& operator=(const FakeNccl&) = delete;

  // Each rank's own; `version` is what its library says it is.
  std::shared_ptr<const NcclApi> api(int version = 22'809) const;

  std::atomic<bool> failing_id = false;    // rank 0 gets no id
  std::atomic<int> failing_init = -1;      // the rank whose communicator fails
  std::atomic<NcclResult> init_error = 2;  // and how: ncclSystemError
  std::atomic<int> pending_init = -1;      // the rank whose communicator is never there
  std::atomic<bool> remote_error = false;  // what communicators say of themselves
  std::atomic<int> remote_error_of = 0;    // the same of those alone that have so many ranks
  std::atomic<int> communicators = 0;      // that are there now
  std::atomic<int> aborted = 0;
  std::atomic<int> calls = 0;
  std::atomic<int> max_ctas = 0;  // what the newest communicator was made with
};

}  // namespace muster::trainer
