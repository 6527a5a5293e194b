// `muster-trainer plan --search`: runs a search (plan_search.h) for a program that reads its lines.
#pragma once

#include <ostream>
#include <string>

#include <absl/status/statusor.h>
#include <nlohmann/json.hpp>

#include "trainer_core/forecast/plan_search.h"

namespace muster::trainer {

// Runs the search and returns its result as JSON (to_json(SearchResult)). Writes a line {"planned",
// "limit", "fitting", "tokens_per_second"} to `out` now and then. `machine_path`: a JSON file of a
// StepMachine. SIGINT or SIGTERM ends the search with what was found; both stay blocked. Requires
// that this process has one thread.
absl::StatusOr<nlohmann::json> run_search(const TrainConfig& config, const PlannedDevice& device,
                                          const std::string& machine_path, SearchOptions options,
                                          std::ostream& out);

}  // namespace muster::trainer
