// Finds the node's GPUs and monitors their health through NVML. Runs on its own thread: NVML calls
// may block for seconds, or forever, on a faulty GPU. Other threads read the latest report;
// GpuReport::answered shows its age.
#pragma once

#include <pthread.h>

#include <memory>
#include <optional>
#include <string>

#include "common/time/time.h"
#include "worker/gpus/gpu_report.h"
#include "worker/gpus/nvml_api.h"

namespace muster::worker {

// The sources of data and the measuring interval.
struct GpuWatchOptions {
  std::string library = kNvmlLibrary;
  std::optional<std::string> visible;           // CUDA_VISIBLE_DEVICES; nullopt: all GPUs
  Duration interval = std::chrono::seconds(5);  // time between two measurements
  // path of an hwloc XML file; empty: this machine's topology
  std::string topology_xml;
};

// A thread that finds and measures the node's GPUs. Thread-safe.
class GpuWatch {
 public:
  explicit GpuWatch(GpuWatchOptions options);
  // Waits a moment for the thread to end. If NVML blocks the thread, leaves it running with its
  // shared state, so that the worker can exit.
  ~GpuWatch();
  GpuWatch(const GpuWatch&) = delete;
  GpuWatch& operator=(const GpuWatch&) = delete;

  // Returns the report once the GPUs have been found, or after `at_most`. Blocks. NVML takes
  // seconds to initialise idle GPUs.
  GpuReport wait_until_found(Duration at_most) const;

  // Returns the latest report. Never blocks.
  GpuReport report() const;
  // Returns report().changes: the number of GPU events and problems so far.
  uint64_t changes() const;

  // Returns the report after a measurement that begins now, or after `at_most` at the latest.
  // Blocks, but not on a node without GPUs.
  GpuReport measure(Duration at_most) const;

 private:
  struct Shared;  // outlives this object if NVML blocks the thread
  class Loop;

  const std::shared_ptr<Shared> shared_;
  std::optional<pthread_t> thread_;
};

}  // namespace muster::worker
