// Owners of CUDA's handles: a stream, and memory of the host that the device writes into.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "trainer_core/ops/cuda/cuda_check.h"

namespace muster::trainer::cuda {

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

// Who waits for it sleeps.
class Event {
 public:
  Event() {
    MUSTER_CUDA_CHECK(
        cudaEventCreateWithFlags(&event_, cudaEventDisableTiming | cudaEventBlockingSync));
  }
  ~Event() { (void)cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void record(const Stream& stream) { MUSTER_CUDA_CHECK(cudaEventRecord(event_, stream)); }
  void synchronize() const { MUSTER_CUDA_CHECK(cudaEventSynchronize(event_)); }

 private:
  cudaEvent_t event_ = nullptr;
};

// Events of one device that nobody uses at the moment. Any thread.
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

// Zeroed and page-locked; one address for host and device.
class HostMemory {
 public:
  explicit HostMemory(size_t bytes) {
    MUSTER_CUDA_CHECK(cudaHostAlloc(&data_, bytes, cudaHostAllocMapped));
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
