// The recovery of a job from an incident, as text for people and as JSON for programs.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "muster/v1/muster.pb.h"

namespace muster::cli {

// Returns "recovery: last progress -> detected 0.9s -> … -> first step 2.1s", in seconds after the
// last progress, and the lost work. Empty for an incident that ended no attempt.
std::vector<std::string> describe_recovery(const v1::Incident& incident);
// Returns the time from the last progress to the next completed step: "2.1s"; "-" when no step
// followed.
std::string time_to_recover(const v1::Incident& incident);

// Returns null for an incident that ended no attempt. Unknown moments are omitted.
nlohmann::json recovery_to_json(const v1::Incident& incident);

}  // namespace muster::cli
