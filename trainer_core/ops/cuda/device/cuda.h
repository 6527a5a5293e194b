// The interface of the CUDA backend to the rest of the trainer. It includes no CUDA header, so that
// files which include it compile without the CUDA toolkit. Builds without the toolkit do not link
// the backend (MUSTER_CUDA in CMakeLists.txt).
//
// A process uses one device. Calls may come from any thread, one at a time per object.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include <absl/status/statusor.h>

#include "trainer_core/ops/ops.h"

namespace muster::trainer {

// The properties of a device.
struct CudaDevice {
  int index = 0;
  std::string name;    // "NVIDIA H200"
  int capability = 0;  // compute capability; 90 means 9.0
  size_t memory_bytes = 0;
  int multiprocessors = 0;
  // The newest CUDA version that the driver supports; 13000 means 13.0.
  int driver_version = 0;
};

// Returns the visible device number `index`. Errors, whose messages name a remedy:
// FailedPrecondition if there is no driver or no device, or the driver is too old; Unimplemented if
// the device is too old, or this build has no code for it; Unavailable if the device exists but
// reports an error.
absl::StatusOr<CudaDevice> find_cuda_device(int index);

// Owns an allocation in device memory.
class CudaMemory {
 public:
  // Allocates zeroed memory. Ends the process if the allocation fails: callers compare the memory
  // plan with the device's memory before.
  explicit CudaMemory(size_t bytes);
  // Does the same, but returns null if the allocation fails.
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

// The backend's device, and the memory and files that it uses in addition to the memory plan.
struct CudaOptions {
  int device = 0;
  // Size of the scratch memory: for sums before their copy to the host, for fp32 operands that are
  // rounded to bf16 before a GEMM, and for the libraries' workspaces.
  size_t scratch_bytes = size_t{96} << 20;
  // Absolute path of the file in which cuBLASLt's choice of algorithms persists between runs;
  // empty: not stored.
  std::string algorithms_path;
  // False: built-in kernels compute all GEMMs and attention, as on a node without cuBLASLt and
  // cuDNN.
  bool use_libraries = true;
  // Whether cuBLASLt rounds the operands of fp32 GEMMs to TF32. Built-in kernels compute in fp32.
  bool allows_tf32 = false;
};

// Returns the operations on a device, with a stream of their own. cuBLASLt computes the GEMMs if
// the library is found, and cuDNN causal attention over complete sequences in bf16; built-in
// kernels compute the rest. name() states the libraries: "cuda, cuBLASLt, cuDNN"; "cuda, own
// products" means none. If a kernel detects an id outside a table, the process ends at the next
// call that waits.
std::unique_ptr<Ops> cuda_ops(const CudaOptions& options);

}  // namespace muster::trainer
