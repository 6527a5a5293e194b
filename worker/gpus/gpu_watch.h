// Finds the node's GPUs and monitors their health through NVML. Runs on its own thread: NVML calls
// may block for seconds, or forever, on a sick GPU. Other threads read the latest report;
// GpuReport::answered shows its age.
#pragma once

#include <pthread.h>

#include <memory>
#include <optional>
#include <string>

#include "common/time.h"
#include "worker/gpus/gpu_report.h"
#include "worker/gpus/nvml_api.h"

namespace muster::worker {

struct GpuWatchOptions {
  std::string library = kNvmlLibrary;
  std::optional<std::string> visible;           // CUDA_VISIBLE_DEVICES; nullopt: all GPUs
  Duration interval = std::chrono::seconds(5);  // between two measurements
  std::string topology_xml;                     // hwloc file; empty: this machine's topology
};

// Thread-safe.
class GpuWatch {
 public:
  explicit GpuWatch(GpuWatchOptions options);
  // Waits for a moment. If NVML blocks the thread, leaves the thread running with its shared state,
  // so that the worker can exit.
  ~GpuWatch();
  GpuWatch(const GpuWatch&) = delete;
  GpuWatch& operator=(const GpuWatch&) = delete;

  // Returns the report once the GPUs have been found, or after `at_most`. NVML takes a while to
  // initialise idle GPUs.
  GpuReport wait_until_found(Duration at_most) const;

  GpuReport report() const;
  uint64_t changes() const;  // report().changes

  // Like report(), but after a measurement that begins now, or after `at_most`. Does not wait on a
  // node without GPUs.
  GpuReport measure(Duration at_most) const;

 private:
  struct Shared;  // outlives this object if NVML blocks the thread
  class Loop;

  const std::shared_ptr<Shared> shared_;
  std::optional<pthread_t> thread_;
};

}  // namespace muster::worker
