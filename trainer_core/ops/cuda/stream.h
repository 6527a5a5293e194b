// Owners of CUDA's handles: a stream, and memory of the host that the device writes into.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstring>

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
