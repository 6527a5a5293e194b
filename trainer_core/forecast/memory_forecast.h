// The memory that a job would need on devices that need not exist. The figures are those of the
// trainer's own memory plans (rank/training_plan.h) and of the reserves beside them
// (startup/device_reserve.h), so a run on the device allocates the same bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "trainer_core/base/train_config.h"
#include "trainer_core/startup/device_reserve.h"

namespace muster::trainer {

// The device that each rank would have for itself.
struct PlannedDevice {
  std::string name;         // as the driver reports it
  size_t memory_bytes = 0;  // that a process can allocate before it has a CUDA context
  // The backend, which runs with NCCL. False: a device for which the trainer has no backend; only
  // the plan counts then, because the reserves of other software are unknown.
  bool has_backend = true;
};

// The memory of a pipeline stage's rank that needs the most.
struct StageMemory {
  int32_t stage = 0;
  int32_t rank = 0;
  std::vector<DeviceReserve> uses;  // of device memory
  size_t device_bytes = 0;          // the sum of `uses`, and gaps between aligned buffers
  size_t host_bytes = 0;            // of the rank: offloaded values, checkpoint staging, libraries
};

struct MemoryForecast {
  std::vector<StageMemory> stages{};  // one per pipeline stage
  size_t node_host_bytes = 0;         // bound on the host memory of all ranks of a node
  size_t checkpoint_bytes = 0;        // of one checkpoint, all ranks together
  size_t memory_bytes = 0;            // the device's
  bool fits = false;                  // on the device
  // If the job does not fit: the text with which a run on the device would end. Empty without
  // Advice::kYes.
  std::string problem{};
};

// Returns the ranks that need the most device memory in their pipeline stage, one per stage. Shares
// of an axis that do not divide evenly are larger at its lower coordinates, so these are the ranks
// with coordinate 0 along all axes except pipeline.
std::vector<int32_t> largest_rank_of_each_stage(const TrainConfig& config);

// Whether to search for values with which a job that does not fit would fit.
enum class Advice { kNo, kYes };

// Computes the forecast. Computes a plan per pipeline stage, which takes some 50 ms for a model of
// 80 layers; with kYes, also the plans of the values that it suggests, which are some dozens.
MemoryForecast forecast_memory(const TrainConfig& requested, const PlannedDevice& device,
                               Advice advice = Advice::kYes);

// Returns the forecast as JSON, in bytes: {"stages": [{"stage", "rank", "uses": [{"name",
// "bytes"}], "device_bytes", "host_bytes"}], "node_host_bytes", "checkpoint_bytes",
// "memory_bytes", "fits", "problem"}.
nlohmann::json to_json(const MemoryForecast& forecast);

}  // namespace muster::trainer
