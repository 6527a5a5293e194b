// The recovery of a job from an incident as text for people.
#pragma once

#include <string>
#include <vector>

#include "muster/v1/muster.pb.h"

namespace muster::cli {

// Returns "recovery: last progress -> detected 0.9s -> … -> first step 2.1s", with times in seconds
// after the last progress, and then a line about the lost work. Returns no lines for an incident
// that ended no attempt.
std::vector<std::string> describe_recovery(const v1::Incident& incident);
// Returns the time from the last progress to the next completed step, "2.1s"; "-" if no step
// followed.
std::string time_to_recover(const v1::Incident& incident);

}  // namespace muster::cli
