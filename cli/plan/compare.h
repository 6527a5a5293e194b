// muster plan --compare: two jobs side by side: the keys that differ, memory, time and cost.
#pragma once

#include <string>

#include "cli/plan/planned_job.h"
#include "cli/plan/step_time_view.h"

namespace muster::cli {

// Plans the job and the one of `other`, and prints a table or JSON. `other`: a config file, to
// which the words of `job` are applied as well, and which is the left column; or words KEY=VALUE…
// that are added to those of `job`, in the right column. Returns the exit code. A job that does not
// fit is no failure.
int compare_plans(const std::string& other, const JobArguments& job, const Planner& planner,
                  const PlanPrices& prices, bool json);

}  // namespace muster::cli
