// Searches the settings of a job (base/setting_space.h) for those that no other setting beats in
// both memory per device and tokens per second: the Pareto frontier. Each setting gets the memory
// forecast and, if it fits, the step-time forecast of a planned job.
//
// The search first expands settings that are on the frontier, the fastest first: it plans all their
// neighbours (Pareto local search; Paquete, Chiarandini and Stützle, 2004). Until a setting fits,
// it expands the one that needs the least memory. Once the frontier has no unexpanded setting, it
// plans the remaining points of the space in order. So a search without a limit finds the frontier
// of the complete space, and a limited one ends near it. Equal limits give equal results on all
// machines.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include <absl/status/statusor.h>
#include <nlohmann/json.hpp>

#include "trainer_core/base/setting_space.h"
#include "trainer_core/base/train_config.h"
#include "trainer_core/forecast/memory_forecast.h"
#include "trainer_core/forecast/step_cost.h"

namespace muster::trainer {

// Returns the tokens of a step of all devices.
double tokens_of_step(const TrainConfig& config);

struct SearchOptions {
  SpaceOptions space = {};
  size_t plans_max = 500;  // settings whose memory is planned
  int threads = 1;         // without effect on the result
};

// A setting with its forecasts.
struct PlannedSetting {
  TrainConfig config;
  MemoryForecast memory = {};
  size_t device_bytes = 0;        // bytes of the rank that needs the most
  double tokens_per_second = 0;   // by all devices; 0: the time is unknown
  nlohmann::json time = nullptr;  // to_json() of the step's forecast; null: unknown
};

struct SearchProgress {
  size_t planned = 0;            // settings whose memory is planned
  size_t fitting = 0;            // the number of planned settings that fit
  double tokens_per_second = 0;  // by the fastest setting that fits
};

struct SearchResult {
  PlannedSetting own;                         // the config's own settings
  std::vector<PlannedSetting> frontier = {};  // by ascending memory and speed
  size_t planned = 0;
  size_t fitting = 0;
  bool is_complete = false;     // all points of the space were planned
  bool is_interrupted = false;  // `proceed` has returned false
};

// Calls `proceed` on this thread after each of its plans, and where the search only skips points,
// for some dozens of them; false ends the search with what was
// found. Returns the error of the step-time forecast of the config's own settings, and
// InvalidArgument if the space has no other setting.
absl::StatusOr<SearchResult> search_settings(
    const TrainConfig& config, const PlannedDevice& device, const StepMachine& machine,
    const SearchOptions& options, const std::function<bool(const SearchProgress&)>& proceed);

// Returns {"own": ROW, "rows": [ROW], "planned", "fitting", "complete", "interrupted"}. A ROW is
// {"changes": {KEY: VALUE}, "line", "keys": {KEY: VALUE}, "memory", "time"}: `changes` and `line`
// are the keys to set beside the config's own, `keys` all keys of the space.
nlohmann::json to_json(const SearchResult& result);

}  // namespace muster::trainer
