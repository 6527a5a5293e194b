// What is known of a node's GPUs: found once, measured again and again, and what has gone wrong with them since the worker was started. Values and
// pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/gpu.h"
#include "common/time.h"
#include "worker/gpus/xid.h"

namespace muster::worker {

// So long NVML may take to say what GPUs there are when a worker starts: it wakes up those that nobody uses, one after the other.
constexpr Duration kGpusFoundWithin = std::chrono::seconds(60);
// Who has not answered for so long hangs: a healthy driver takes milliseconds, one that wakes up GPUs some seconds.
constexpr Duration kNvmlSilence = std::chrono::seconds(15);
// Enough to tell of a day of errors; the newest are kept.
constexpr size_t kGpuEventsMax = 256;

// What a GPU does not tell is not there.
struct GpuHealth {
  std::optional<uint64_t> memory_used_bytes;
  std::optional<double> utilization;  // 0 to 1
  std::optional<double> temperature_celsius;
  std::optional<double> power_watts;
  std::optional<double> sm_clock_hertz, memory_clock_hertz;
  std::optional<uint64_t> throttle_reasons;                // bits, nvml_api.h
  std::optional<uint64_t> ecc_corrected, ecc_uncorrected;  // since the driver was loaded
  std::optional<bool> row_remap_failed;
};

struct GpuState {
  Gpu gpu;
  std::vector<int32_t> cpus;  // near it, of its NUMA node; empty: not known
  GpuHealth health;
  // Why nothing is to be started on it, a clause: "GPU 3 is lost (Xid 79: fallen off the bus)"; empty: nothing.
  std::string problem;
  std::map<uint64_t, uint64_t> xids;  // how many of each since the worker was started
};

// Something that a GPU, or the driver about it, has reported.
struct GpuEvent {
  Instant at{};
  size_t gpu = 0;  // into GpuReport::gpus
  GpuBlame blame = GpuBlame::kGpu;
  std::string text;  // a clause, as GpuState::problem
};

struct GpuReport {
  bool looked = false;       // NVML has answered what GPUs there are, or that there are none
  std::string none_because;  // why there are none, in words for people
  std::string driver;        // "550.54.15"
  std::map<std::string, std::string>
      all;  // names by UUID, of those that are left out of `gpus`, too
  std::vector<GpuState> gpus;
  std::vector<std::string>
      missing;  // those that the driver counts and that do not answer: a clause each
  std::vector<GpuEvent> events;  // oldest first, at most kGpuEventsMax
  Instant answered{};    // NVML's newest answer; of a node without NVML: when that was found
  uint64_t samples = 0;  // measurements of all GPUs
  uint64_t changes = 0;  // grows with each event and problem

  bool has_nvml() const { return !looked || !gpus.empty(); }
};

// What of the GPUs `of` (into report.gpus) has been reported since then.
struct GpuTrouble {
  std::string cause;  // of a rank's end, a clause; empty: nothing that is the GPUs' own fault
  std::vector<std::string>
      messages;  // all of it, with the times of the clock that the kernel's messages have
};
GpuTrouble trouble_since(const GpuReport& report, std::span<const int32_t> of, Instant since,
                         Instant now);

// "NVML has not answered for 23 s: a GPU or its driver hangs"; empty while it answers.
std::string nvml_silence(const GpuReport& report, Instant now);

// Why nothing is to be started on this node, as far as its GPUs go: a sentence; empty: they are good.
std::string why_unfit(const GpuReport& report, Instant now);

// Why there are none, as of the worker's start: a clause; empty where there are some.
std::string why_no_gpus(const GpuReport& report);

// "8 GPUs NVIDIA H100 80GB HBM3, driver 550.54.15", or why there are none.
std::string describe_gpus(const GpuReport& report);

// Those of `gpus` that a process with this CUDA_VISIBLE_DEVICES (nothing: it has none) sees, in its order: numbers, or beginnings of UUIDs, up to the first
// that is neither, as CUDA has it.
std::vector<GpuState> visible_gpus(std::vector<GpuState> gpus,
                                   const std::optional<std::string>& variable);

}  // namespace muster::worker
