// Formats the result of `muster plan --compare` as text and JSON. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "cli/plan/step_time_view.h"

namespace muster::cli {

// One of the two jobs.
struct ComparedPlan {
  std::string name;     // heading of its column
  nlohmann::json keys;  // object: the resolved value of each key
  std::string mesh;
  int64_t sequences = 0;  // per step, by all ranks
  nlohmann::json forecast;
  std::optional<StepFigures> figures;  // nullopt: the topology does not state what a time needs
};

using ComparedPlans = std::array<ComparedPlan, 2>;

// A key with both values.
struct DifferentKey {
  std::string key;
  std::array<std::string, 2> values;  // "-": the job does not have the key
};
// Returns the keys whose values differ, in alphabetical order, without names and paths of outputs,
// which do not change a plan.
std::vector<DifferentKey> different_keys(const ComparedPlans& plans);

// Returns a table of the keys that differ, and one of the figures.
std::string describe_comparison(const ComparedPlans& plans);

// Returns {"plans": [{"name", "mesh", "sequences", "memory", "step"}], "keys": {KEY: [A, B]}}.
nlohmann::json to_json(const ComparedPlans& plans);

}  // namespace muster::cli
