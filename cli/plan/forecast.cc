#include "cli/plan/forecast.h"

#include <algorithm>
#include <vector>

#include <absl/strings/str_cat.h>

#include "cli/run/exec_trainer.h"
#include "cli/terminal/child_process.h"
#include "common/process/run_child.h"
#include "common/time/time.h"

namespace muster::cli {

std::string with_devices(const std::string& train_config_json, const jobspec::Topology& topology) {
  auto config = nlohmann::json::parse(train_config_json, nullptr, /*allow_exceptions=*/false);
  if (!config.is_object()) return train_config_json;
  const auto hardware = config.find("hardware");
  if (hardware == config.end() || *hardware != "auto") return train_config_json;
  *hardware = topology.is_cpu ? "cpu" : "gpu";
  return config.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

absl::StatusOr<std::vector<std::string>> plan_words(const std::string& train_config_json,
                                                    const jobspec::Topology& topology,
                                                    const ForecastOptions& options) {
  const auto trainer = sibling_program("muster-trainer");
  if (!trainer.ok()) return trainer.status();
  const auto config = in_memory_file(with_devices(train_config_json, topology));
  if (!config.ok()) return config.status();
  std::vector<std::string> words = {
      *trainer,   "plan",          "--config",     *config,
      "--device", topology.device, "--memory-mib", absl::StrCat(topology.memory_mib)};
  if (!topology.has_backend) words.emplace_back("--without-backend");
  if (options.changes == FittingChanges::kOmit) words.emplace_back("--without-advice");
  absl::StatusOr<std::string> machine = std::string();
  if (!options.machine.is_null()) {
    machine = in_memory_file(options.machine.dump());
    if (!machine.ok()) return machine.status();
    words.insert(words.end(), {"--machine", *machine});
  }
  if (options.planned_slices > 0)
    words.insert(words.end(), {"--slices", absl::StrCat(options.planned_slices)});
  if (options.keeps_global_batch) words.emplace_back("--keep-global-batch");
  if (options.layouts) words.emplace_back("--layouts");
  if (!options.timeline.empty()) words.insert(words.end(), {"--timeline", options.timeline});
  return words;
}

absl::StatusOr<nlohmann::json> run_forecast(const std::string& train_config_json,
                                            const jobspec::Topology& topology,
                                            const ForecastOptions& options) {
  const auto words = plan_words(train_config_json, topology, options);
  if (!words.ok()) return words.status();
  const auto end = run_child(*words, {.deadline = monotonic_now() + options.within});
  if (!end.ok()) return end.status();
  auto parsed = nlohmann::json::parse(end->output, nullptr, /*allow_exceptions=*/false);
  if (end->exit_code == 0 && parsed.is_object()) return parsed;
  return absl::InternalError(
      absl::StrCat("muster-trainer plan ended with exit code ", end->exit_code, ": ", end->errors));
}

uint64_t largest_device_bytes(const nlohmann::json& forecast) {
  uint64_t most = 0;
  for (const auto& stage : forecast["stages"])
    most = std::max(most, stage["device_bytes"].get<uint64_t>());
  return most;
}

}  // namespace muster::cli
