// The forecasts of step times that the commands of muster-trainer print as JSON.
#pragma once

#include <functional>
#include <map>
#include <string>

#include <absl/status/statusor.h>
#include <nlohmann/json.hpp>

#include "trainer_core/base/train_config.h"
#include "trainer_core/forecast/step_time.h"

namespace muster::trainer {

// Forecasts the time of a step. `path`: a JSON file of a StepMachine. Writes the timeline to
// `timeline_path`, unless that is empty.
absl::StatusOr<nlohmann::json> forecast_time(const TrainConfig& config, const std::string& path,
                                             const std::string& timeline_path);

// Returns a function that forecasts the seconds of a step per token, infinite if the step cannot be
// recorded. `path`: a JSON file of a StepMachine.
absl::StatusOr<std::function<double(const TrainConfig&)>> seconds_per_token(
    const std::string& path);

// Answers a line of `step-times`: {"job", "config"} records a job in `models`; {"machine", "jobs"}
// returns the forecasts of jobs, in their order.
absl::StatusOr<nlohmann::json> answer_step_times(const nlohmann::json& line,
                                                 std::map<std::string, StepModel>& models);

}  // namespace muster::trainer
