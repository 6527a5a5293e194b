// Runs `muster-trainer plan`, which computes the memory of a job on devices that this machine need
// not have.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <absl/status/statusor.h>
#include <nlohmann/json.hpp>

#include "common/time/time.h"
#include "jobspec/files/topology.h"

namespace muster::cli {

// kFind: if the job does not fit, the error contains config changes with which it would. The search
// takes seconds for large models.
enum class FittingChanges { kOmit, kFind };

struct ForecastOptions {
  FittingChanges changes = FittingChanges::kOmit;
  // A StepMachine (trainer_core/forecast/step_cost.h) for the time of a step; null: memory alone.
  nlohmann::json machine = nullptr;
  std::string timeline{};  // path of a picture of the step; empty: none
  // compile_topology_num_slices, which determines the number of nodes; 0: the mesh does.
  int32_t planned_slices = 0;
  bool layouts = false;                       // adds "saved", the trainer's part of a saved plan
  bool keeps_global_batch = false;            // the advice for a job with global_batch_size
  Duration within = std::chrono::minutes(5);  // the longest time that the trainer may take
};

// Returns the config with the topology's devices instead of hardware=auto. Texts that are no config
// stay as they are.
std::string with_devices(const std::string& train_config_json, const jobspec::Topology& topology);

// Returns the command `muster-trainer plan` for a job with this config, as JSON of a TrainConfig,
// on devices of this type. Its files live as long as this process.
absl::StatusOr<std::vector<std::string>> plan_words(const std::string& train_config_json,
                                                    const jobspec::Topology& topology,
                                                    const ForecastOptions& options);

// Returns the forecast (trainer_core/forecast/memory_forecast.h) of a job with this config, as JSON
// of a TrainConfig, on devices of this type, which hardware=auto chooses. Blocks until the trainer
// has ended, at most for options.within.
absl::StatusOr<nlohmann::json> run_forecast(const std::string& train_config_json,
                                            const jobspec::Topology& topology,
                                            const ForecastOptions& options);

// Returns the device memory of the rank that needs the most, in bytes.
uint64_t largest_device_bytes(const nlohmann::json& forecast);

}  // namespace muster::cli
