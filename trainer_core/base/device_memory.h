// The memory of tensors and the host's access to it, implemented by each backend (ops/backend.h).
// Code that allocates and copies, but runs no operations, uses this interface instead of a backend.
//
// All classes are thread-safe. Copies do not wait for the backend's operations: callers must first
// wait for the operations that write the data (Ops::synchronize). An operation that is called after
// a copy has returned reads the copied data.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "common/time/time.h"

namespace muster::trainer {

// A position in a device queue, as a CUDA event is. Thread-safe. A device error ends the process.
class DeviceMark {
 public:
  virtual ~DeviceMark() = default;

  // Returns whether all work enqueued before the marker is done.
  virtual bool is_done() const = 0;
  // Blocks until is_done(). The thread sleeps instead of polling.
  virtual void wait() const = 0;
  // Returns the time on the device from `earlier` to this marker. `earlier` may belong to another
  // queue of the same device. Requires that both are done.
  virtual Duration since(const DeviceMark& earlier) const = 0;
};

// A queue of device work that runs in the order in which it was enqueued, as a CUDA stream does.
// Called by one thread at a time.
class DeviceQueue {
 public:
  virtual ~DeviceQueue() = default;

  virtual void* handle() const = 0;  // a cudaStream_t
  // Returns a marker after all work enqueued so far.
  virtual std::shared_ptr<const DeviceMark> mark() = 0;
  // Makes work that is enqueued later wait on the device until `mark` is done. `mark` may belong to
  // another queue of the device. The host does not wait.
  virtual void wait_for(const DeviceMark& mark) = 0;
};

// The memory of one device, or of the host.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;

  // Returns whether the host can access this memory directly, so that no copies are needed.
  virtual bool is_host() const = 0;
  // Returns zeroed memory, which is freed with the last pointer to it. A failed allocation ends the
  // process, because callers compare their memory plans with the free memory first.
  virtual std::shared_ptr<void> allocate(size_t bytes) const = 0;
  // Allocates as allocate() does, but returns null if the device has too little free memory.
  // Requires bytes > 0.
  virtual std::shared_ptr<void> try_allocate(size_t bytes) const { return allocate(bytes); }
  // Returns zeroed host memory that download(), upload() and Ops::copy access at full speed
  // (page-locked, if the memory is a GPU's).
  virtual std::shared_ptr<void> allocate_host(size_t bytes) const = 0;
  // Returns zeroed host memory whose pages exist only once they are written. Copies from and to it
  // are slow before pin_host(); operations may not use it.
  virtual std::shared_ptr<void> reserve_host(size_t bytes) const;
  // Page-locks a part of the memory of reserve_host() that is not locked yet, so that its copies
  // become fast. Blocks for some 0.1 s per GiB. If the system refuses, copies remain slow.
  virtual void pin_host(void* /*begin*/, size_t /*bytes*/) const {}
  // Returns whether `address` lies in an allocation of this memory that the host cannot access.
  virtual bool holds(const void* address) const = 0;
  // Copies from this memory to the host (download) or from the host to this memory (upload). Blocks
  // until the copy is complete.
  virtual void download(const void* from, void* to, size_t bytes) const = 0;
  virtual void upload(const void* from, void* to, size_t bytes) const = 0;
  // Opens a queue whose work runs in parallel with the backend's operations. Returns null if this
  // is host memory.
  virtual std::unique_ptr<DeviceQueue> open_queue() const { return nullptr; }
  // Returns a text that identifies the device within its node: two processes with equal identities
  // share a device. Empty if this is host memory.
  virtual std::string identity() const { return ""; }
};

// Returns the memory of the host; it lives until the process ends.
const DeviceMemory& host_memory();

}  // namespace muster::trainer
