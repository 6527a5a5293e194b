// Measures the device of this rank for forecasts of step times: the calls of `muster bench device`.
//
// Small models train for a few steps, on every rank of the node at once, so that ranks share the
// machine as those of a job do. Each operation of these steps is timed (op_timer.h) and paired with
// the work that the forecast records for it (step_recorder.h); device_fit.h fits the constants. One
// more model, and a step that shards parameters over all ranks, check the forecast of whole steps.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <absl/status/statusor.h>
#include <nlohmann/json.hpp>

#include "trainer_core/base/train_config.h"
#include "trainer_core/comm/process_groups.h"
#include "trainer_core/forecast/device_fit.h"
#include "trainer_core/ops/backend.h"

namespace muster::trainer {

// A step that was measured as a whole.
struct MeasuredStep {
  std::string name;  // "emb_dim=256 max_target_length=256"
  double seconds = 0;
  double forecast_seconds = 0;
  bool is_fitted = false;  // its operations determine the constants
  int32_t ranks = 1;       // that computed it together
};

struct MeasuredDevice {
  DeviceSamples samples;
  StepMachine machine;
  std::vector<MeasuredStep> steps;
};

struct DeviceBenchOptions {
  ComputeType dtype = ComputeType::kFloat32;  // the type of activations
  // Factor of the models' sizes: 1 is for CPUs of some cores. 0: chosen by the device's peak.
  int32_t scale = 0;
  int32_t steps = 5;  // measured steps of each model, at most
  // The time of the measurement. If it is short, models run fewer steps, but at least one that
  // counts; a slow machine may then take longer.
  double seconds = 90;
};

// Returns how many steps a model runs after its first one, from 1 to `most`. `remaining`: the
// seconds of the measurement that are left, for this model and `runs` - 1 others. `first`: the
// seconds of the first step.
int steps_within(double remaining, int runs, double first, int most);

// Measures. All ranks must call it at once. `groups`: of a mesh whose fsdp degree is the number of
// ranks; it must be constructed with the memory of `backend`. Times are means over all ranks.
// Returns the errors of the groups and of forecasts.
absl::StatusOr<MeasuredDevice> measure_device(const std::shared_ptr<Backend>& backend,
                                              ProcessGroups& groups,
                                              const DeviceBenchOptions& options);

// Returns {"device": {the fields of DeviceModel}, "constants", "steps": [{"name", "seconds",
// "forecast_seconds", "fitted", "ranks"}]}.
nlohmann::json to_json(const MeasuredDevice& measured);

}  // namespace muster::trainer
