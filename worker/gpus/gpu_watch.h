// Finds the node's GPUs and watches their health through NVML, on a thread of its own: its calls may block for seconds where a GPU is sick, or for good.
// Everybody else reads what it knows, and sees by GpuReport::answered how old that is.
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
  std::optional<std::string> visible;           // CUDA_VISIBLE_DEVICES; nothing: all are
  Duration interval = std::chrono::seconds(5);  // between two measurements
  std::string topology_xml;                     // of hwloc; empty: this machine's
};

// Any thread may call everything.
class GpuWatch {
 public:
  explicit GpuWatch(GpuWatchOptions options);
  // Waits for a moment. A thread that NVML does not let go of is left to it, with all that it uses: a worker has to be able to end.
  ~GpuWatch();
  GpuWatch(const GpuWatch&) = delete;
  GpuWatch& operator=(const GpuWatch&) = delete;

  // What is known once it is known what GPUs there are, or when `at_most` is over. NVML takes a while to wake up those that nobody uses.
  GpuReport wait_until_found(Duration at_most) const;

  GpuReport report() const;
  uint64_t changes() const;  // report().changes

  // The same after a measurement that begins now, or when `at_most` is over. Nothing is waited for on a node without GPUs.
  GpuReport look(Duration at_most) const;

 private:
  struct Shared;  // outlives this object where NVML does not let go of the thread
  class Loop;

  const std::shared_ptr<Shared> shared_;
  std::optional<pthread_t> thread_;
};

}  // namespace muster::worker
