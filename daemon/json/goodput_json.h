// Accounts of jobs' time as JSON, for --json and the coordinator's page.
#pragma once

#include <nlohmann/json.hpp>

#include "muster/v1/muster.pb.h"

namespace muster::daemon {

// Returns the effective training time ratio (ETTR); 0 before the first start.
double goodput_ratio(const v1::Goodput& goodput);
nlohmann::json goodput_to_json(const v1::Goodput& goodput);

}  // namespace muster::daemon
