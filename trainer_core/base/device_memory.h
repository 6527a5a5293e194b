// The memory of tensors and the host's access to it, implemented by a backend (ops/backend.h). This
// interface serves code that allocates and copies but runs no operations.
//
// Thread-safe. Copies are not ordered with the backend's operations: callers first wait for the
// operations that write the data (Ops::synchronize). An operation that is called after a copy sees
// the copied data.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "common/time.h"

namespace muster::trainer {

// A marker in a queue's order of calls. Thread-safe. A device error ends the process.
class DeviceMark {
 public:
  virtual ~DeviceMark() = default;

  // Returns whether all work enqueued before the marker is done.
  virtual bool is_done() const = 0;
  // Blocks until is_done(); the thread sleeps.
  virtual void wait() const = 0;
  // Returns the device time from `earlier`, a marker of any of its queues, to this one. Requires
  // that both are done.
  virtual Duration since(const DeviceMark& earlier) const = 0;
};

// A queue of device work in the order of one thread's calls.
class DeviceQueue {
 public:
  virtual ~DeviceQueue() = default;

  virtual void* handle() const = 0;  // CUDA's cudaStream_t
  // Returns a marker after all work enqueued so far.
  virtual std::shared_ptr<const DeviceMark> mark() = 0;
  // Makes later work begin only after `mark`, of any queue of the device, is done. The host does
  // not wait.
  virtual void wait_for(const DeviceMark& mark) = 0;
};

class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;

  // Returns whether the host accesses this memory directly; then no copies are needed.
  virtual bool is_host() const = 0;
  // Returns zeroed memory that lives as long as a pointer to it. A failed allocation ends the
  // process: plans are compared with the free memory beforehand.
  virtual std::shared_ptr<void> allocate(size_t bytes) const = 0;
  // The same, but returns null if the device has no room. Requires bytes > 0.
  virtual std::shared_ptr<void> try_allocate(size_t bytes) const { return allocate(bytes); }
  // Allocates host memory that suits copies and Ops::copy.
  virtual std::shared_ptr<void> allocate_host(size_t bytes) const = 0;
  // Returns zeroed host memory that costs nothing until it is written. Copies from and to it are
  // slow before pin_host(); operations may not use it.
  virtual std::shared_ptr<void> reserve_host(size_t bytes) const;
  // Page-locks a part of reserve_host()'s memory that is not pinned yet, which makes copies of it
  // fast. Blocks for some 0.1 s per GiB. Where the system refuses, copies stay slow.
  virtual void pin_host(void* /*begin*/, size_t /*bytes*/) const {}
  // Returns whether `address` belongs to an allocation that the host cannot access.
  virtual bool holds(const void* address) const = 0;
  // Copy to the host and from it; return when the copy is complete.
  virtual void download(const void* from, void* to, size_t bytes) const = 0;
  virtual void upload(const void* from, void* to, size_t bytes) const = 0;
  // Opens a queue that runs beside the backend's operations; null if the memory is the host's.
  virtual std::unique_ptr<DeviceQueue> open_queue() const { return nullptr; }
  // Identifies the device within its node: equal identities share one device. Empty if the memory
  // is the host's.
  virtual std::string identity() const { return ""; }
};

// The host's memory.
const DeviceMemory& host_memory();

}  // namespace muster::trainer
