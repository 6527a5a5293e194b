// Forecasts the memory of a job on devices that this machine need not have. The figures are those
// of the trainer's own memory plans (rank/training_plan.h), by which a run on the device allocates
// its memory, and of the reserves in addition to the plans (startup/device_reserve.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "trainer_core/base/train_config.h"
#include "trainer_core/startup/device_reserve.h"

namespace muster::trainer {

// A type of device. Each rank has one device.
struct PlannedDevice {
  std::string name;  // as the driver reports it
  // The bytes that a process can allocate before it has a CUDA context.
  size_t memory_bytes = 0;
  // True: the trainer has a backend for the device, and runs with NCCL. False: only the plan
  // counts, because the reserves of other software are unknown.
  bool has_backend = true;
};

// The memory of one pipeline stage: that of its rank with the largest device memory.
struct StageMemory {
  int32_t stage = 0;
  int32_t rank = 0;
  std::vector<DeviceReserve> uses;  // the uses of device memory
  size_t device_bytes = 0;          // the sum of `uses`, plus gaps between aligned buffers
  // The rank's host memory: offloaded values, checkpoint staging, libraries.
  size_t host_bytes = 0;
};

struct MemoryForecast {
  std::vector<StageMemory> stages{};  // one per pipeline stage
  size_t node_host_bytes = 0;         // upper bound on the host memory of all ranks of a node
  size_t checkpoint_bytes = 0;        // size of one checkpoint, of all ranks together
  size_t memory_bytes = 0;            // PlannedDevice::memory_bytes
  bool fits = false;                  // whether each stage fits on its devices
  // The error with which a run on the device would end, including config changes that fit. Empty if
  // the job fits, and without advice.
  std::string problem{};
};

// Returns the rank of each pipeline stage that needs the most device memory. If a dimension does
// not divide evenly, the ranks with lower coordinates get the larger shares. The result is
// therefore the rank of each stage with coordinate 0 along all other axes.
std::vector<int32_t> largest_rank_of_each_stage(const TrainConfig& config);

// The search for changes of a job that does not fit.
struct PlanAdvice {
  bool is_wanted = true;
  bool keeps_global_batch = false;                                        // AdviceOptions
  int32_t planned_slices = 0;                                             // AdviceOptions
  std::function<double(const TrainConfig&)> seconds_per_token = nullptr;  // AdviceOptions
};

// Computes the forecast from one plan per pipeline stage. A plan takes some ms for a model of 80
// layers. If the job does not fit, advice needs up to some hundreds of further plans, to find
// config changes that fit by this forecast.
MemoryForecast forecast_memory(const TrainConfig& requested, const PlannedDevice& device,
                               const PlanAdvice& advice = {});

// Returns the device memory of the rank that needs the most.
size_t largest_device_bytes(const MemoryForecast& forecast);

// Returns the forecast as JSON, in bytes: {"stages": [{"stage", "rank", "uses": [{"name",
// "bytes"}], "device_bytes", "host_bytes"}], "node_host_bytes", "checkpoint_bytes",
// "memory_bytes", "fits", "problem"}.
nlohmann::json to_json(const MemoryForecast& forecast);

}  // namespace muster::trainer
