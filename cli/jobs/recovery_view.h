// How a job came back from an incident, as text for people and as JSON for programs.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "muster/v1/muster.pb.h"

namespace muster::cli {

// "recovery: last progress -> detected 0.9s -> … -> first step 2.1s", seconds after the last progress; and what was lost. Empty for an
// incident that has ended no attempt.
std::vector<std::string> describe_recovery(const v1::Incident& incident);
// From the last progress to the next completed step: "2.1s"; "-" when there was none.
std::string time_to_recover(const v1::Incident& incident);

// Null for an incident that has ended no attempt. Moments that are not known are left out.
nlohmann::json recovery_to_json(const v1::Incident& incident);

}  // namespace muster::cli
