// muster plan --search: the settings of a job that no other setting beats in both memory per device
// and speed. The trainer searches (trainer_core/forecast/plan_search.h); this command shows its
// progress and its result.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <absl/status/status.h>

#include "cli/plan/planned_job.h"
#include "cli/plan/step_time_view.h"

namespace muster::cli {

struct SearchArguments {
  bool is_wanted = false;              // --search
  int64_t limit = 500;                 // --search-limit
  bool has_limit = false;              // whether the user gives it
  std::vector<std::string> keep = {};  // --keep
};

// Adds --search and the options that belong to it.
void add_search_options(CLI::App& command, SearchArguments& arguments);

// Returns InvalidArgument for a limit out of range, an unknown key of --keep, or one of these
// options without --search.
absl::Status check_search_arguments(const SearchArguments& arguments);

// Runs the search and prints its result. Returns the exit code: 0; 2 if no setting fits, or if the
// kept keys leave no other setting; 130 after Ctrl-C, which ends the search and prints what was
// found. Requires that no other thread exists.
int search_plans(const SearchArguments& search, const JobArguments& job, const Planner& planner,
                 const PlanPrices& prices, bool json);

}  // namespace muster::cli
