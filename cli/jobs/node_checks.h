// muster node check and checks: deep checks of idle nodes, and their stored results.
#pragma once

#include "cli/command.h"

namespace muster::cli {

// Declares both commands below `muster node`.
void declare_node_checks(CLI::App& node, Action& action);

}  // namespace muster::cli
