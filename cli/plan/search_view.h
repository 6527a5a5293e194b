// Formats the result of `muster plan --search` as text and JSON. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "cli/plan/step_time_view.h"

namespace muster::cli {

// A setting of the search.
struct FoundSetting {
  std::string line;        // words to add to the command line; empty: the user's own setting
  nlohmann::json changes;  // the same words as an object
  std::string mesh;
  int64_t sequences = 0;  // per step, by all ranks
  nlohmann::json memory;  // the memory forecast
  StepFigures figures;
};

struct FoundSettings {
  FoundSetting own = {};                // the user's own setting
  std::vector<FoundSetting> rows = {};  // the frontier, by ascending memory and speed
  size_t planned = 0;
  size_t fitting = 0;
  int64_t limit = 0;
  bool is_complete = false;
  bool is_interrupted = false;
};

// Returns a table with two lines per setting: its figures, and the words that select it, which are
// not wrapped. The user's own setting has a row, too. A long frontier is thinned out.
std::string describe_search(const FoundSettings& found);

// Returns {"own", "rows", "planned", "fitting", "complete", "interrupted"}.
nlohmann::json to_json(const FoundSettings& found);

}  // namespace muster::cli
