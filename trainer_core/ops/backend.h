// A rank's compute backend: its operations, and the memory that they work in. The trainer accesses
// a device only through this interface, which both backends implement; on the CPU it adds no cost.
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

  virtual Ops& ops() = 0;  // one thread at a time
  virtual const DeviceMemory& memory() const = 0;
  // The CPU's threads, which determine workspace sizes in plans.
  virtual int threads() const = 0;
  // "CPU, 8 threads"; "NVIDIA H200, compute capability 9.0, …".
  virtual std::string description() const = 0;
  // Bytes of a device's own memory: total, currently free, used by the backend in addition to a
  // plan, and the peak allocation. 0 if the memory is the host's.
  virtual size_t total_bytes() const { return 0; }
  virtual size_t free_bytes() const { return 0; }
  virtual size_t own_bytes() const { return 0; }
  virtual size_t peak_bytes() const { return 0; }
  // Streaming multiprocessors of a device; 0 for the host.
  virtual int multiprocessors() const { return 0; }
  // Names the current phase of this process for profilers. Any thread. The name must live forever.
  virtual void enter_phase(const char* /*name*/) {}
  // Starts or stops a profiler that waits for it (nsys profile --capture-range=cudaProfilerApi).
  // Returns false if no profiler can record.
  virtual bool record_profile(bool /*on*/) { return false; }
};

std::shared_ptr<Backend> cpu_backend(int threads);

// Resources of a GPU backend beside the plan.
struct GpuOptions {
  // Selects the visible device of this index; if there are fewer devices, ranks share them
  // round-robin.
  int rank_of_node = 0;
  // Scratch for reductions that return to the host, operands of bf16 GEMMs that are rounded first,
  // and the library's GEMMs.
  size_t scratch_bytes = size_t{96} << 20;
  // Absolute path at which the matrix library's choice of algorithms persists between runs; empty:
  // not stored.
  std::string algorithms_path = {};
  // Whether the library may round the operands of fp32 GEMMs to TF32 (matmul_precision).
  bool allows_tf32 = false;
};

// Returns the CUDA backend on a device. Errors: Unimplemented in a build without CUDA, or without
// code for the device; FailedPrecondition if this machine has no device or too old a driver;
// Unavailable if a device reports an error. Messages state the requirement.
absl::StatusOr<std::shared_ptr<Backend>> gpu_backend(const GpuOptions& options);
// Returns the number of visible devices; 0 in a build without CUDA.
int gpu_count();

}  // namespace muster::trainer
