#include <cstddef>
#include <iostream>
#include <limits>
#include <map>
#include <optional>
#include <string>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>
#include <nlohmann/json.hpp>

#include "common/process/start_limits.h"
#include "trainer_core/base/units.h"
#include "trainer_core/commands.h"
#include "trainer_core/forecast/memory_forecast.h"
#include "trainer_core/forecast/saved_layouts.h"
#include "trainer_core/forecast/search_output.h"
#include "trainer_core/forecast/time_forecast.h"
#include "trainer_core/startup/command_line.h"
#include "trainer_core/startup/planned_start.h"

namespace muster::trainer {
namespace {

absl::StatusOr<nlohmann::json> search_plans(const CommandLine& line, const TrainConfig& config,
                                            const PlannedDevice& device) {
  const auto limit = line.integer("search", 0, 1, kSearchPlansMax);
  if (!limit.ok()) return limit.status();
  SearchOptions options{.space = {.keeps_global_batch = line.has("keep-global-batch")},
                        .plans_max = static_cast<size_t>(*limit)};
  options.space.kept = absl::StrSplit(line.text("keep"), ',', absl::SkipEmpty());
  return run_search(config, device, line.text("machine"), options, std::cout);
}

}  // namespace

ExitCode plan_command(std::span<const std::string_view> arguments) {
  constexpr const char* kName = "muster-trainer plan";
  const auto line = CommandLine::parse(
      arguments,
      {.values = {"config", "device", "memory-mib", "machine", "timeline", "slices", "search",
                  "keep"},
       .switches = {"without-backend", "without-advice", "keep-global-batch", "layouts"}});
  if (!line.ok()) return report(kName, line.status());
  // The thread that answers requests for stacks, and that of a forecast's collectives.
  if (auto status = check_start_needs("muster plan", {.threads = 2}); !status.ok())
    return report(kName, status);
  auto config = config_option(*line);
  if (!config.ok()) return report(kName, config.status());
  for (const char* name : {"device", "memory-mib"}) {
    if (!line->has(name))
      return report(kName, absl::InvalidArgumentError(absl::StrCat("--", name, " is missing")));
  }
  const auto memory = line->integer("memory-mib", 0, 1, kDeviceMemoryMibMax);
  if (!memory.ok()) return report(kName, memory.status());
  if (config->hardware == Hardware::kAuto)
    return report(kName, absl::InvalidArgumentError("hardware: auto cannot be planned"));
  const PlannedDevice device{.name = line->text("device"),
                             .memory_bytes = static_cast<size_t>(*memory) << 20,
                             .has_backend = !line->has("without-backend")};
  if (line->has("search")) {
    const auto found = search_plans(*line, *config, device);
    if (!found.ok()) return report(kName, found.status());
    return print_result(found->dump() + "\n");
  }
  PlanAdvice advice{.is_wanted = !line->has("without-advice"),
                    .keeps_global_batch = line->has("keep-global-batch")};
  const auto slices = line->integer("slices", 0, 0, std::numeric_limits<int32_t>::max());
  if (!slices.ok()) return report(kName, slices.status());
  advice.planned_slices = static_cast<int32_t>(*slices);
  // An evaluation alone has no training step, whose time could be forecast.
  const bool forecasts_time = line->has("machine") && !config->only_evaluates();
  if (forecasts_time) {
    auto seconds = seconds_per_token(line->text("machine"));
    if (!seconds.ok()) return report(kName, seconds.status());
    advice.seconds_per_token = *std::move(seconds);
  }
  const MemoryForecast forecast = forecast_memory(*config, device, advice);
  nlohmann::json out = to_json(forecast);
  if (forecasts_time) {
    const auto time = forecast_time(*config, line->text("machine"), line->text("timeline", ""));
    if (!time.ok()) return report(kName, time.status());
    out["time"] = *time;
  }
  if (line->has("layouts")) {
    out["saved"] = saved_layouts(*config, planned_threads(*config), line->text("device"));
  }
  return print_result(out.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

ExitCode step_times_command(std::span<const std::string_view> arguments) {
  constexpr const char* kName = "muster-trainer step-times";
  if (!arguments.empty()) return report(kName, absl::InvalidArgumentError("takes no arguments"));
  std::map<std::string, StepModel> models;
  for (std::string text; std::getline(std::cin, text);) {
    const auto line = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
    const auto answered = answer_step_times(line, models);
    if (!answered.ok()) return report(kName, answered.status());
    if (const ExitCode code = print_result(answered->dump() + "\n"); code != ExitCode::kOk)
      return code;
  }
  return ExitCode::kOk;
}

}  // namespace muster::trainer
