// The memory that tensors lie in, and how the host gets at it: a backend's (ops/backend.h), as those see it who allocate, copy and
// know of no operation.
//
// Any thread. Copies are beside the backend's operations: whoever wants what these have yet to write waits for them first
// (Ops::synchronize), and an operation that is called after a copy sees what was copied.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "common/time.h"

namespace muster::trainer {

// A place in the order of a queue's calls. Any thread. An error of the device ends the process.
class DeviceMark {
 public:
  virtual ~DeviceMark() = default;

  // Whether what was called before it is done.
  virtual bool is_done() const = 0;
  // Until it is; the thread sleeps.
  virtual void wait() const = 0;
  // What the device took from `earlier`, a mark of any of its queues, to this one. Both are done.
  virtual Duration since(const DeviceMark& earlier) const = 0;
};

// What the device does for one thread, in the order of its calls.
class DeviceQueue {
 public:
  virtual ~DeviceQueue() = default;

  virtual void* handle() const = 0;  // CUDA's cudaStream_t
  // Behind all that was called.
  virtual std::shared_ptr<const DeviceMark> mark() = 0;
  // What is called from here on begins when `mark`, of any queue of the device, is done. The host does not wait.
  virtual void wait_for(const DeviceMark& mark) = 0;
};

class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;

  // Whether the host reads and writes it where it lies; then nothing has to be copied.
  virtual bool is_host() const = 0;
  // Zeroed, and the caller's as long as somebody has the pointer. An allocation that fails ends the process: plans are compared with what
  // there is before.
  virtual std::shared_ptr<void> allocate(size_t bytes) const = 0;
  // The same, but null where a device has no room for so many bytes, which are some.
  virtual std::shared_ptr<void> try_allocate(size_t bytes) const { return allocate(bytes); }
  // The same of the host's memory, as copies and the backend's operations (Ops::copy) like it.
  virtual std::shared_ptr<void> allocate_host(size_t bytes) const = 0;
  // Returns zeroed host memory that costs nothing until it is written. Copies from and to it are slow before
  // pin_host(); operations may not use it.
  virtual std::shared_ptr<void> reserve_host(size_t bytes) const;
  // Page-locks a part of reserve_host()'s memory that is not pinned yet, which makes copies of it fast. Blocks for some
  // 0.1 s per GiB. Where the system refuses, copies stay slow.
  virtual void pin_host(void* /*begin*/, size_t /*bytes*/) const {}
  // Whether `address` lies in what allocate() has given, and the host may not touch it.
  virtual bool holds(const void* address) const = 0;
  // To the host, and from it. They return when all is copied.
  virtual void download(const void* from, void* to, size_t bytes) const = 0;
  virtual void upload(const void* from, void* to, size_t bytes) const = 0;
  // Beside the backend's operations, as copies are; null where the memory is the host's.
  virtual std::unique_ptr<DeviceQueue> open_queue() const { return nullptr; }
  // Of the device within its node: those who have the same share one. Empty where the memory is the host's.
  virtual std::string identity() const { return ""; }
};

// The host's own.
const DeviceMemory& host_memory();

}  // namespace muster::trainer
