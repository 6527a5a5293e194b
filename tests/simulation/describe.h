// Formats events and actions of the coordinator as one line each, for the event log and for
// comparing replays.
#pragma once

#include <string>

#include "coordinator/core/action.h"
#include "coordinator/core/event.h"

namespace muster::simulation {

std::string describe(const coordinator::Event& event);
std::string describe(const coordinator::Action& action);

}  // namespace muster::simulation
