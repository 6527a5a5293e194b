// Jobs, their attempts and workers as JSON, for --json and the coordinator's page.
#pragma once

#include <cstdint>
#include <string_view>

#include <nlohmann/json.hpp>

#include "muster/v1/muster.pb.h"

namespace muster::daemon {

// Returns null for a value that is not finite.
nlohmann::json json_number(double value);

// Return the message's fields under their names in muster.v1, with ids as numbers, states as names,
// and the train config, if there is one, as an object.
nlohmann::json job_to_json(const v1::Job& job);
nlohmann::json worker_to_json(const v1::WorkerInfo& worker);
nlohmann::json history_to_json(const v1::GetJobHistoryResponse& history);

// Returns a job's config as JSON; null if it is no JSON, or nested deeper than kJsonDepthMax, as
// coordinators of earlier versions have stored.
nlohmann::json config_to_json(std::string_view train_config_json);

// Returns the steps of attempt number `index` of the history that later attempts repeated; -1: not
// known.
int64_t steps_lost(const v1::GetJobHistoryResponse& history, int index);

}  // namespace muster::daemon
