// The state of a node's GPUs. The GPUs are found once and measured repeatedly; problems are
// collected since the worker's start. This file has values and pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/job/gpu.h"
#include "common/time/time.h"
#include "worker/gpus/xid.h"

namespace muster::worker {

// Time limit for NVML to list the GPUs when a worker starts. NVML initialises idle GPUs one after
// the other.
constexpr Duration kGpusFoundWithin = std::chrono::seconds(60);
// Time without an answer of NVML after which the driver counts as hung: a healthy driver answers
// within milliseconds, or within seconds when it initialises GPUs.
constexpr Duration kNvmlSilence = std::chrono::seconds(15);
// Maximum number of retained events, enough for a day of errors; the oldest are dropped.
constexpr size_t kGpuEventsMax = 256;

// Measurements of one GPU. A value that the GPU does not support is nullopt.
struct GpuHealth {
  std::optional<uint64_t> memory_used_bytes;
  std::optional<double> utilization;  // 0 to 1
  std::optional<double> temperature_celsius;
  std::optional<double> power_watts;
  std::optional<double> sm_clock_hertz, memory_clock_hertz;
  // a set of the kThrottle… bits of nvml_api.h
  std::optional<uint64_t> throttle_reasons;
  std::optional<uint64_t> ecc_corrected, ecc_uncorrected;  // counts since the driver was loaded
  std::optional<bool> row_remap_failed;
};

// One GPU of the node, its newest measurements and its problem.
struct GpuState {
  Gpu gpu;
  std::string pci_address;    // as in the kernel's messages, "0000:3b:00"; empty: unknown
  std::vector<int32_t> cpus;  // CPUs of the GPU's NUMA node; empty: unknown
  GpuHealth health;
  // The reason why no rank may use the GPU, as a clause: "GPU 3 is lost (Xid 79: fallen off the
  // bus)"; empty: healthy.
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

// The state of all GPUs of a node at one moment.
struct GpuReport {
  bool is_listed = false;    // NVML has listed the GPUs, or reported that there are none
  std::string none_because;  // the reason why there are no GPUs, for people
  std::string driver;        // "550.54.15"
  // GPU names by UUID, including GPUs that `gpus` leaves out
  std::map<std::string, std::string> all;
  std::vector<GpuState> gpus;
  // one clause for each GPU that the driver counts and that does not answer
  std::vector<std::string> missing;
  std::vector<GpuEvent> events;  // oldest first, at most kGpuEventsMax
  // time of NVML's newest answer; on a node without NVML: the time at which its absence was found
  Instant answered{};
  uint64_t samples = 0;  // measurements of all GPUs
  uint64_t changes = 0;  // incremented by each event and problem

  bool has_nvml() const { return !is_listed || !gpus.empty(); }
};

// The errors of some GPUs since a given time.
struct GpuErrors {
  std::string cause;  // cause of a rank's end, as a clause; empty: no GPU is to blame
  // all events of these GPUs, formatted like kernel messages; then nvml_silence(), if it is not
  // empty
  std::vector<std::string> messages;
};
// Returns the errors since `since` of the GPUs `of` (indices into report.gpus). `now`: the current
// time.
GpuErrors errors_since(const GpuReport& report, std::span<const int32_t> of, Instant since,
                       Instant now);

// Returns "NVML has not answered for 23 s: a GPU or its driver hangs", or "" while it answers.
std::string nvml_silence(const GpuReport& report, Instant now);

// Returns, as a sentence, the reason why the GPUs make this node unfit to start ranks; an empty
// string if the GPUs are healthy.
std::string why_unfit(const GpuReport& report, Instant now);

// Returns, as a clause, the reason why the worker found no GPUs at its start; an empty string if it
// found GPUs.
std::string missing_gpus_reason(const GpuReport& report);
// Returns the GPUs as CUDA_VISIBLE_DEVICES names them; "none" without one.
std::string visible_gpus(const GpuReport& report);

// Returns "8 GPUs NVIDIA H100 80GB HBM3, driver 550.54.15", or the reason why there are no GPUs.
std::string describe_gpus(const GpuReport& report);

// Returns the GPUs of `gpus` that a process sees if `variable` is its CUDA_VISIBLE_DEVICES, in the
// variable's order; nullopt means that the variable is unset. As in CUDA, the variable lists
// indices or UUID prefixes, and the list ends at the first invalid entry.
std::vector<GpuState> visible_gpus(std::vector<GpuState> gpus,
                                   const std::optional<std::string>& variable);

}  // namespace muster::worker
