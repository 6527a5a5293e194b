#include "cli/plan/plan_comparison.h"

#include <cmath>

#include <absl/strings/match.h>

#include "cli/plan/forecast.h"
#include "cli/run/pasted_command.h"

namespace muster::cli {
namespace {

int64_t microseconds(double seconds) { return std::llround(seconds * 1e6); }

}  // namespace

PredictedStep predicted_step(const nlohmann::json& forecast) {
  PredictedStep step;
  const auto time = forecast.find("time");
  if (time == forecast.end() || !time->is_object()) return step;
  step.seconds = time->value("seconds", 0.0);
  for (const nlohmann::json& part : time->value("parts", nlohmann::json::array())) {
    const std::string name = part.value("name", std::string());
    // A stage waits for the others in the bubble.
    if (absl::StartsWith(name, "communication: ") || name == "pipeline bubble")
      step.communication_seconds += part.value("seconds", 0.0);
  }
  return step;
}

nlohmann::json step_machine(const jobspec::Topology& topology,
                            const std::optional<jobspec::Calibration>& calibration) {
  nlohmann::json device = {{"fp8_tflops", 0}, {"multiprocessors", 0}};
  for (const auto& [key, value] : topology.numbers) device[key] = value;
  device["devices_per_node"] = topology.devices_per_node;
  auto constants = nlohmann::json::object();
  if (calibration)
    for (const auto& [key, value] : calibration->constants) constants[key] = value;
  return {{"device", std::move(device)}, {"constants", std::move(constants)}};
}

void set_prediction(const PredictedStep& step, uint64_t memory_bytes, v1::JobSpec& spec) {
  spec.set_planned_step_us(microseconds(step.seconds));
  spec.set_planned_communication_us(microseconds(step.communication_seconds));
  spec.set_planned_memory_bytes(static_cast<int64_t>(memory_bytes));
  if (step.seconds <= 0) return;
  auto config =
      nlohmann::json::parse(spec.train_config_json(), nullptr, /*allow_exceptions=*/false);
  if (!config.is_object()) return;
  config["planned_step_seconds"] = step.seconds;
  config["planned_communication_seconds"] = step.communication_seconds;
  spec.set_train_config_json(config.dump());
}

std::vector<std::string> known_calibrations(const JobArguments& arguments) {
  const auto config = arguments.config_path.empty() && !arguments.config
                          ? absl::StatusOr<jobspec::Config>(jobspec::Config())
                          : load_config(arguments);
  return jobspec::calibration_folders(config.ok() ? *config : jobspec::Config(),
                                      shipped_base_yml().value_or(""));
}

void predict(const jobspec::Topology& topology, const std::vector<std::string>& folders,
             v1::JobSpec& spec) {
  if (spec.command_size() > 0 || spec.planned_step_us() > 0) return;
  ForecastOptions options;
  if (topology.has_times()) {
    auto calibration =
        jobspec::find_calibration("muster", topology.name, topology.calibrated_as, folders);
    if (calibration.ok()) options.machine = step_machine(topology, *std::move(calibration));
  }
  auto config =
      nlohmann::json::parse(spec.train_config_json(), nullptr, /*allow_exceptions=*/false);
  if (!config.is_object()) return;
  config["hardware"] = topology.is_cpu ? "cpu" : "gpu";  // "auto" chooses these devices
  const auto forecast = run_forecast(config.dump(), topology, options);
  if (forecast.ok())
    set_prediction(predicted_step(*forecast), largest_device_bytes(*forecast), spec);
}

}  // namespace muster::cli
