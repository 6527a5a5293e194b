// A rank's compute backend: its operations, and the memory in which they work. The trainer accesses
// a device only through this interface. The CPU backend and the CUDA backend implement it.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include <absl/status/statusor.h>

#include "trainer_core/base/device_memory.h"
#include "trainer_core/ops/ops.h"

namespace muster::trainer {

class Backend {
 public:
  virtual ~Backend() = default;

  virtual Ops& ops() = 0;  // called by one thread at a time
  virtual const DeviceMemory& memory() const = 0;
  // Returns the number of CPU threads, which determines the sizes of workspaces in the memory plan.
  virtual int threads() const = 0;
  // Returns, for example, "CPU, 8 threads" or "NVIDIA H200, compute capability 9.0, …".
  virtual std::string description() const = 0;
  // The functions below return bytes of a device's own memory: all of it, the free part, the part
  // that the backend uses in addition to the memory plan, and the peak of allocations. They return
  // 0 if the backend uses the host's memory.
  virtual size_t total_bytes() const { return 0; }
  virtual size_t free_bytes() const { return 0; }
  virtual size_t own_bytes() const { return 0; }
  virtual size_t peak_bytes() const { return 0; }
  // Returns the number of a device's streaming multiprocessors; 0 for the CPU.
  virtual int multiprocessors() const { return 0; }
  // Names the current phase of this process for profilers. Any thread may call it. Requires that
  // `name` is never freed.
  virtual void enter_phase(const char* /*name*/) {}
  // Starts or stops the recording of a profiler that waits for this call (nsys profile
  // --capture-range=cudaProfilerApi). Returns false if no profiler can record.
  virtual bool record_profile(bool /*on*/) { return false; }
};

// Returns a CPU backend with this number of threads.
std::shared_ptr<Backend> cpu_backend(int threads);

// The device of a GPU backend, and its resources beside the memory plan.
struct GpuOptions {
  // Number of the rank on its node. It selects the visible device with this index; if there are
  // fewer devices than ranks, the ranks share them round-robin.
  int rank_of_node = 0;
  // Size of the scratch memory for reductions whose results go to the host, for fp32 operands that
  // are rounded to bf16 before a GEMM, and for the libraries.
  size_t scratch_bytes = size_t{96} << 20;
  // Absolute path of the file in which cuBLASLt's choice of algorithms persists between runs;
  // empty: not stored.
  std::string algorithms_path = {};
  // Whether the library may round the operands of fp32 GEMMs to TF32 (matmul_precision).
  bool allows_tf32 = false;
};

// Returns a CUDA backend. Errors: Unimplemented in a build without CUDA, or without code for the
// device; FailedPrecondition if this machine has no device or too old a driver; Unavailable if a
// device reports an error. Error messages state the requirement that is not met.
absl::StatusOr<std::shared_ptr<Backend>> gpu_backend(const GpuOptions& options);
// Returns the number of visible devices; 0 in a build without CUDA.
int gpu_count();

}  // namespace muster::trainer
