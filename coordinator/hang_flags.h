// The flags that say how long a job's ranks may stand still; see coordinator/core/hang_detector.h.
#pragma once

#include <CLI/CLI.hpp>

#include "coordinator/core/hang_detector.h"

namespace muster::coordinator {

// `budgets` must outlive the parsing.
void declare_hang_flags(CLI::App& app, HangBudgets& budgets);

}  // namespace muster::coordinator
