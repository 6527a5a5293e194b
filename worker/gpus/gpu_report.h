// The state of a node's GPUs: found once, measured repeatedly, with all problems since the worker
// started. Values and pure functions.
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

// Limit for NVML to list the GPUs when a worker starts: it initialises idle GPUs one after the
// other.
constexpr Duration kGpusFoundWithin = std::chrono::seconds(60);
// A driver that is silent for so long hangs: healthy ones take milliseconds, or seconds to
// initialise GPUs.
constexpr Duration kNvmlSilence = std::chrono::seconds(15);
// Covers a day of errors; the newest are kept.
constexpr size_t kGpuEventsMax = 256;

// Measurements of one GPU. A value that the GPU does not support is nullopt.
struct GpuHealth {
  std::optional<uint64_t> memory_used_bytes;
  std::optional<double> utilization;  // 0 to 1
  std::optional<double> temperature_celsius;
  std::optional<double> power_watts;
  std::optional<double> sm_clock_hertz, memory_clock_hertz;
  std::optional<uint64_t> throttle_reasons;                // bits, see nvml_api.h
  std::optional<uint64_t> ecc_corrected, ecc_uncorrected;  // since the driver was loaded
  std::optional<bool> row_remap_failed;
};

struct GpuState {
  Gpu gpu;
  std::vector<int32_t> cpus;  // of its NUMA node; empty: unknown
  GpuHealth health;
  // The reason why no rank may use it, as a clause: "GPU 3 is lost (Xid 79: fallen off the bus)";
  // empty: healthy.
  std::string problem;
  std::map<uint64_t, uint64_t> xids;  // Xid → count since the worker started
};

// An error reported by a GPU or by the driver about it.
struct GpuEvent {
  Instant at{};
  size_t gpu = 0;  // index into GpuReport::gpus
  GpuBlame blame = GpuBlame::kGpu;
  std::string text;  // a clause, as GpuState::problem
};

struct GpuReport {
  bool is_listed = false;    // NVML has listed the GPUs, or reported that there are none
  std::string none_because;  // reason, for people, why there are none
  std::string driver;        // "550.54.15"
  // names by UUID, including GPUs that are left out of `gpus`
  std::map<std::string, std::string> all;
  std::vector<GpuState> gpus;
  // GPUs that the driver counts and that do not answer: a clause each
  std::vector<std::string> missing;
  std::vector<GpuEvent> events;  // oldest first, at most kGpuEventsMax
  // NVML's newest answer; on a node without NVML: the time when that was found
  Instant answered{};
  uint64_t samples = 0;  // measurements of all GPUs
  uint64_t changes = 0;  // incremented by each event and problem

  bool has_nvml() const { return !is_listed || !gpus.empty(); }
};

// The events of the GPUs `of` (indices into report.gpus) since a given time.
struct GpuErrors {
  std::string cause;  // of a rank's end, as a clause; empty: no GPU is to blame
  // all events, with timestamps in the format of kernel messages
  std::vector<std::string> messages;
};
GpuErrors errors_since(const GpuReport& report, std::span<const int32_t> of, Instant since,
                       Instant now);

// Returns "NVML has not answered for 23 s: a GPU or its driver hangs", or "" while it answers.
std::string nvml_silence(const GpuReport& report, Instant now);

// Returns the reason, as a sentence, why the GPUs make this node unfit to start ranks; empty: they
// are healthy.
std::string why_unfit(const GpuReport& report, Instant now);

// Returns the reason, as a clause, why the worker found no GPUs at its start; empty if there are
// some.
std::string missing_gpus_reason(const GpuReport& report);

// Returns "8 GPUs NVIDIA H100 80GB HBM3, driver 550.54.15", or the reason why there are none.
std::string describe_gpus(const GpuReport& report);

// Returns those of `gpus` that a process with this CUDA_VISIBLE_DEVICES sees, in its order;
// nullopt: the variable is unset. As in CUDA, the list holds indices or UUID prefixes and ends at
// the first invalid entry.
std::vector<GpuState> visible_gpus(std::vector<GpuState> gpus,
                                   const std::optional<std::string>& variable);

}  // namespace muster::worker
