#include "cli/plan/plan_comparison.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include <absl/strings/match.h>

#include "cli/plan/forecast.h"
#include "cli/plan/storage_waits.h"
#include "cli/run/pasted_command.h"

namespace muster::cli {
namespace {

constexpr std::array<const char*, 2> kNetworkKeys = {"network_gb_s", "network_latency_us"};
// The limit of saved plans (trainer_core/base/saved_plan.cc).
constexpr double kStepSecondsMax = 86'400;
// A start does not wait longer for a prediction that it can do without.
constexpr Duration kPredictedWithin = std::chrono::seconds(10);

int64_t microseconds(double seconds) { return std::llround(seconds * 1e6); }

// Returns the number of a key; 0 if the object has no number there.
double seconds_at(const nlohmann::json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  return found != object.end() && found->is_number() ? found->get<double>() : 0;
}

std::string word_at(const nlohmann::json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

bool has_network(const jobspec::Topology& topology) {
  return topology.number("network_gb_s").has_value();
}

// Returns whether the two machine types have the same network.
bool have_same_network(const jobspec::Topology& a, const jobspec::Topology& b) {
  return std::ranges::all_of(kNetworkKeys, [&](const char* key) {
    const auto of_a = a.numbers.find(key), of_b = b.numbers.find(key);
    if (of_a == a.numbers.end() || of_b == b.numbers.end())
      return (of_a == a.numbers.end()) == (of_b == b.numbers.end());
    return of_a->second == of_b->second;
  });
}

}  // namespace

PredictedStep predicted_step(const nlohmann::json& forecast) {
  const auto time = forecast.find("time");
  if (time == forecast.end()) return {};
  PredictedStep step{.seconds = seconds_at(*time, "seconds")};
  if (!(step.seconds > 0 && step.seconds <= kStepSecondsMax)) return {};
  const auto parts = time->find("parts");
  if (parts == time->end() || !parts->is_array()) return step;
  for (const nlohmann::json& part : *parts) {
    const std::string name = word_at(part, "name");
    // A stage waits for the others in the bubble.
    if (absl::StartsWith(name, "communication: ") || name == "pipeline bubble")
      step.communication_seconds += seconds_at(part, "seconds");
  }
  // std::max() returns its first argument for NaN.
  step.communication_seconds = std::min(std::max(0.0, step.communication_seconds), step.seconds);
  return step;
}

void add_data_wait(const trainer::TrainConfig& config, PredictedStep& step) {
  if (step.seconds <= 0) return;
  step.data_seconds =
      std::min(data_wait(config, step.read_seconds, step.seconds), kStepSecondsMax - step.seconds);
  step.seconds += step.data_seconds;
}

void add_storage_waits(const trainer::TrainConfig& config, const jobspec::Topology& topology,
                       const nlohmann::json& forecast, PredictedStep& step) {
  if (step.seconds <= 0) return;
  const StorageWaits waits =
      storage_waits(config, topology, step_seconds_of(forecast.value("time", nlohmann::json())),
                    seconds_at(forecast, "checkpoint_bytes"));
  step.read_seconds = std::min(waits.read_seconds, kStepSecondsMax);
  add_data_wait(config, step);
  step.checkpoint_seconds = std::min(waits.checkpoint_seconds, kStepSecondsMax);
}

nlohmann::json step_machine(const jobspec::Topology& topology,
                            const std::optional<jobspec::Calibration>& calibration) {
  // Links that the file does not have are not used by the job (Topology::missing_times).
  nlohmann::json device = {{"fp8_tflops", 0},   {"multiprocessors", 0},
                           {"node_gb_s", 1},    {"node_latency_us", 0},
                           {"network_gb_s", 1}, {"network_latency_us", 0}};
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
  spec.set_planned_data_us(microseconds(step.data_seconds));
  spec.set_planned_checkpoint_us(microseconds(step.checkpoint_seconds));
  spec.set_planned_memory_bytes(static_cast<int64_t>(memory_bytes));
  if (step.seconds <= 0) return;
  auto config =
      nlohmann::json::parse(spec.train_config_json(), nullptr, /*allow_exceptions=*/false);
  if (!config.is_object()) return;
  config["planned_step_seconds"] = step.seconds;
  const auto set_part = [&](const char* key, double seconds) {
    if (seconds > 0) config[key] = seconds;
  };
  set_part("planned_communication_seconds", step.communication_seconds);
  set_part("planned_data_seconds", step.data_seconds);
  set_part("planned_checkpoint_seconds", step.checkpoint_seconds);
  spec.set_train_config_json(config.dump());
}

std::optional<jobspec::Topology> topology_of_device(
    std::string_view device, const std::vector<jobspec::Topology>& topologies, int32_t nodes) {
  const jobspec::Topology* first = nullptr;
  // The first of those that have a network; a measured topology may have none.
  const jobspec::Topology* network = nullptr;
  bool is_same = true;
  for (const jobspec::Topology& topology : topologies) {
    if (topology.device != device) continue;
    if (first == nullptr || (topology.is_measured && !first->is_measured)) first = &topology;
    if (topology.is_measured && !has_network(topology)) continue;
    if (network == nullptr) network = &topology;
    is_same = is_same && have_same_network(*network, topology);
  }
  if (first == nullptr) return std::nullopt;
  jobspec::Topology found = *first;
  if (nodes == 1 || (found.is_measured && has_network(found))) return found;
  for (const char* key : kNetworkKeys) {
    found.numbers.erase(key);
    if (network == nullptr || !is_same) continue;
    if (const auto number = network->number(key)) found.numbers[key] = *number;
  }
  if (network != nullptr && is_same) found.network_link = network->network_link;
  return found;
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
  const auto config =
      nlohmann::json::parse(spec.train_config_json(), nullptr, /*allow_exceptions=*/false);
  if (!config.is_object()) return;
  const std::string hardware = word_at(config, "hardware");
  if (hardware == (topology.is_cpu ? "gpu" : "cpu")) return;
  ForecastOptions options{.within = kPredictedWithin};
  const jobspec::Topology devices =
      jobspec::with_ranks_per_node(topology, std::max(spec.ranks_per_node(), 1));
  if (devices.has_times(spec.nodes(), spec.ranks_per_node())) {
    auto calibration =
        jobspec::find_calibration("muster", devices.name, devices.calibrated_as, folders);
    if (calibration.ok()) options.machine = step_machine(devices, *std::move(calibration));
  }
  const auto forecast = run_forecast(spec.train_config_json(), devices, options);
  if (!forecast.ok()) return;
  PredictedStep step = predicted_step(*forecast);
  if (const auto parsed = trainer::train_config_from_json(config); parsed.ok())
    add_storage_waits(*parsed, devices, *forecast, step);
  set_prediction(step, largest_device_bytes(*forecast), spec);
}

}  // namespace muster::cli
