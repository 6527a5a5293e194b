// Owners of CUDA streams, events, and host memory to which the device writes, and the CUDA
// implementation of DeviceQueue (base/device_memory.h).
#pragma once

#include <cuda_runtime.h>

#include <chrono>
#include <cstddef>
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "trainer_core/base/device_memory.h"
#include "trainer_core/ops/cuda/device/cuda_check.h"

namespace muster::trainer::cuda {

// Owns a CUDA stream.
class Stream {
 public:
  Stream() { MUSTER_CUDA_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  ~Stream() { (void)cudaStreamDestroy(stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  operator cudaStream_t() const { return stream_; }  // NOLINT(google-explicit-constructor)
  void synchronize() const { MUSTER_CUDA_CHECK(cudaStreamSynchronize(stream_)); }

 private:
  cudaStream_t stream_ = nullptr;
};

// Owns a CUDA event with timing enabled. A thread that waits for the event sleeps.
class Event {
 public:
  Event() { MUSTER_CUDA_CHECK(cudaEventCreateWithFlags(&event_, cudaEventBlockingSync)); }
  ~Event() { (void)cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  operator cudaEvent_t() const { return event_; }  // NOLINT(google-explicit-constructor)

 private:
  cudaEvent_t event_ = nullptr;
};

// A pool of unused events of one device. Thread-safe.
class EventPool {
 public:
  std::unique_ptr<Event> take() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) return std::make_unique<Event>();
    auto event = std::move(free_.back());
    free_.pop_back();
    return event;
  }
  void give_back(std::unique_ptr<Event> event) {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(event));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Event>> free_;
};

// A DeviceMark: an event from a pool, to which the destructor returns it.
class Mark final : public DeviceMark {
 public:
  Mark(std::shared_ptr<EventPool> pool, int device)
      : pool_(std::move(pool)), event_(pool_->take()), device_(device) {}
  ~Mark() override { pool_->give_back(std::move(event_)); }
  Mark(const Mark&) = delete;
  Mark& operator=(const Mark&) = delete;

  cudaEvent_t event() const { return *event_; }

  bool is_done() const override {
    select();
    const cudaError_t found = cudaEventQuery(*event_);
    if (found == cudaErrorNotReady) return false;
    MUSTER_CUDA_CHECK(found);
    return true;
  }
  void wait() const override {
    select();
    MUSTER_CUDA_CHECK(cudaEventSynchronize(*event_));
  }
  Duration since(const DeviceMark& earlier) const override {
    select();
    float ms = 0;
    MUSTER_CUDA_CHECK(
        cudaEventElapsedTime(&ms, static_cast<const Mark&>(earlier).event(), *event_));
    return std::chrono::duration_cast<Duration>(std::chrono::duration<float, std::milli>(ms));
  }

 private:
  // Selects the device, because a thread that has selected none would create a context on GPU 0.
  void select() const { MUSTER_CUDA_CHECK(cudaSetDevice(device_)); }

  std::shared_ptr<EventPool> pool_;
  std::unique_ptr<Event> event_;
  int device_;
};

// A DeviceQueue with a CUDA stream.
class Queue final : public DeviceQueue {
 public:
  // Requires that `device` is the calling thread's current device.
  explicit Queue(int device) : device_(device) {}

  const Stream& stream() const { return stream_; }

  void* handle() const override { return static_cast<cudaStream_t>(stream_); }
  std::shared_ptr<const DeviceMark> mark() override {
    MUSTER_CUDA_CHECK(cudaSetDevice(device_));
    auto mark = std::make_shared<Mark>(events_, device_);
    MUSTER_CUDA_CHECK(cudaEventRecord(mark->event(), stream_));
    return mark;
  }
  void wait_for(const DeviceMark& mark) override {
    MUSTER_CUDA_CHECK(cudaSetDevice(device_));
    MUSTER_CUDA_CHECK(cudaStreamWaitEvent(stream_, static_cast<const Mark&>(mark).event(), 0));
  }

 private:
  const int device_;
  Stream stream_;
  std::shared_ptr<EventPool> events_ = std::make_shared<EventPool>();
};

// Owns zeroed, page-locked host memory that has the same address on host and device.
class HostMemory {
 public:
  explicit HostMemory(size_t bytes) {
    const cudaError_t error = cudaHostAlloc(&data_, bytes, cudaHostAllocMapped);
    MUSTER_CHECK(error != cudaErrorMemoryAllocation)
        << "out of memory: the host has no " << (bytes >> 20)
        << " MiB that a GPU can copy from and to, which have to be free at once";
    MUSTER_CUDA_CHECK(error);
    std::memset(data_, 0, bytes);
  }
  ~HostMemory() { (void)cudaFreeHost(data_); }
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;

  void* data() const { return data_; }

 private:
  void* data_ = nullptr;
};

}  // namespace muster::trainer::cuda
