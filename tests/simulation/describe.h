// Formats each event and action of the coordinator as one line, for the event log and to compare
// replays.
#pragma once

#include <string>

#include "coordinator/core/action.h"
#include "coordinator/core/event.h"

namespace muster::simulation {

std::string describe(const coordinator::Event& event);
std::string describe(const coordinator::Action& action);

}  // namespace muster::simulation
