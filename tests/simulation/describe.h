// Events and actions of the coordinator as one line each: the event log, and what a replay is compared by.
#pragma once

#include <string>

#include "coordinator/core/action.h"
#include "coordinator/core/event.h"

namespace muster::simulation {

std::string describe(const coordinator::Event& event);
std::string describe(const coordinator::Action& action);

}  // namespace muster::simulation
