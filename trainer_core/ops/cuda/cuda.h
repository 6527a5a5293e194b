// The interface of the CUDA backend to the rest of the trainer. It includes no CUDA header, so that
// files which include it compile without the toolkit; such builds do not link the backend
// (MUSTER_CUDA, CMakeLists.txt).
//
// A process uses one device. Calls may come from any thread, one at a time per object.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include <absl/status/statusor.h>

#include "trainer_core/ops/ops.h"

namespace muster::trainer {

struct CudaDevice {
  int index = 0;
  std::string name;    // "NVIDIA H200"
  int capability = 0;  // 90 stands for 9.0
  size_t memory_bytes = 0;
  int multiprocessors = 0;
  // The newest CUDA version that the driver supports; 13000 stands for 13.0.
  int driver_version = 0;
};

// Returns device `index` of those that are visible to the process. Errors, whose messages name a
// remedy: FailedPrecondition if there is no driver or no device, or the driver is too old;
// Unimplemented if the device is too old, or this build has no code for it; Unavailable if the
// device exists but reports an error.
absl::StatusOr<CudaDevice> find_cuda_device(int index);

// A zeroed allocation in device memory, freed by the destructor. Ends the process if the allocation
// fails: the plan gives the required size beforehand (find_cuda_device returns the device's size).
class CudaMemory {
 public:
  explicit CudaMemory(size_t bytes);
  // Returns null if the device has no room.
  static std::shared_ptr<CudaMemory> try_allocate(size_t bytes);
  ~CudaMemory();
  CudaMemory(const CudaMemory&) = delete;
  CudaMemory& operator=(const CudaMemory&) = delete;

  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  CudaMemory(void* data, size_t bytes);

  void* data_ = nullptr;
  size_t bytes_ = 0;
};

// Memory and files that the backend uses beside the plan's arena.
struct CudaOptions {
  int device = 0;
  // Scratch for sums on their way to the host, for operands of bf16 GEMMs that are rounded first,
  // and for the workspaces of libraries.
  size_t scratch_bytes = size_t{96} << 20;
  // Absolute path of the file in which the matrix library's choice of algorithms persists between
  // runs; empty: none.
  std::string algorithms_path;
  // False: only built-in kernels compute GEMMs and attention, as if cuBLASLt and cuDNN were not
  // found.
  bool use_libraries = true;
  // Whether cuBLASLt rounds the operands of fp32 GEMMs to TF32. Built-in kernels compute in fp32.
  bool allows_tf32 = false;
};

// Returns a backend on a stream of its own on the device. Kernels detect ids outside a table: the
// process then ends at the next call that waits. cuBLASLt computes the GEMMs if its library is
// found, else built-in kernels; cuDNN computes attention over whole causal sequences in bf16.
// name() reports which: "cuda, cuBLASLt, cuDNN", "cuda, own products".
std::unique_ptr<Ops> cuda_ops(const CudaOptions& options);

}  // namespace muster::trainer
