// The CUDA backend of the op table, as the rest of the trainer sees it: no CUDA header, so that whoever includes this compiles where
// the toolkit is missing. There it is not linked (MUSTER_CUDA, CMakeLists.txt).
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
  int capability = 0;  // 90 is 9.0
  size_t memory_bytes = 0;
  int multiprocessors = 0;
  int driver_version = 0;  // the newest CUDA that the driver knows: 13000 is 13.0
};

// Device `index` of those that the process sees. FailedPrecondition where there is no driver or no device, or where the driver is too old;
// Unimplemented where the device is, or this build has no code for it; Unavailable where one that is there has an error. Says what to do.
absl::StatusOr<CudaDevice> find_cuda_device(int index);

// A zeroed allocation in the device's memory, for its whole life. An allocation that fails ends the process: what a run needs is known
// from its plan before (find_cuda_device has the device's size).
class CudaMemory {
 public:
  explicit CudaMemory(size_t bytes);
  // Null where the device has no room.
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

// What the backend keeps for itself on the device beside the plan's arena.
struct CudaOptions {
  int device = 0;
  // For sums on their way to the host, operands of bf16 products that are rounded first, and the library's products.
  size_t scratch_bytes = size_t{96} << 20;
  // Where the matrix library's choice of algorithms is kept from run to run, absolute; empty: nowhere.
  std::string algorithms_path;
  // False: products and attention by our own kernels alone, as where cuBLASLt and cuDNN are not found.
  bool use_libraries = true;
};

// The backend on its own stream of the device. Ids outside a table are found by kernels: the process ends at the next call that waits.
// Products are cuBLASLt's where its library is found, else our own; attention of whole causal sequences of bf16 cuDNN's. name() says
// which: "cuda, cuBLASLt, cuDNN", "cuda, own products".
std::unique_ptr<Ops> cuda_ops(const CudaOptions& options);

}  // namespace muster::trainer
