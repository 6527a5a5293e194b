// What a rank computes with: a backend's operations, and the memory that they work in. The trainer sees nothing else of a device, and
// both backends go through the same seam; on the CPU it costs nothing.
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
  // Of the CPU's workspaces: what plans are made for.
  virtual int threads() const = 0;
  // "CPU, 8 threads"; "NVIDIA H200, compute capability 9.0, …".
  virtual std::string description() const = 0;
  // Of a device's own memory: all of it, what no process has of it at the moment, what the backend takes beside a plan's, and the most that
  // was allocated at one time. 0 where it is the host's.
  virtual size_t total_bytes() const { return 0; }
  virtual size_t free_bytes() const { return 0; }
  virtual size_t own_bytes() const { return 0; }
  virtual size_t peak_bytes() const { return 0; }
  // Streaming multiprocessors of a device; 0 where it is the host.
  virtual int multiprocessors() const { return 0; }
  // What this process does from here on, for profilers that show it; any thread. The name lives for ever.
  virtual void enter_phase(const char* /*name*/) {}
  // Begins, or ends, what a profiler records that waits for it (nsys profile --capture-range=cudaProfilerApi). False where there is nothing
  // that could be recorded.
  virtual bool record_profile(bool /*on*/) { return false; }
};

std::shared_ptr<Backend> cpu_backend(int threads);

// What a GPU's backend keeps beside the plan.
struct GpuOptions {
  // Of the devices that the process sees it takes the one with this number; where there are fewer, ranks share them in turn.
  int rank_of_node = 0;
  // For sums on their way to the host, operands of bf16 products that are rounded first, and the library's products.
  size_t scratch_bytes = size_t{96} << 20;
  // Where the matrix library's choice of algorithms is kept from run to run, absolute; empty: nowhere.
  std::string algorithms_path = {};
};

// The CUDA backend on a device. Unimplemented in a build without CUDA, or without code for the device; FailedPrecondition where this machine
// has no device, or a driver that is too old; Unavailable where one has an error. Messages say what would be right.
absl::StatusOr<std::shared_ptr<Backend>> gpu_backend(const GpuOptions& options);
// How many devices the process sees; 0 in a build without CUDA.
int gpu_count();

}  // namespace muster::trainer
