// Formats the result of `muster plan` as text. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "cli/plan/step_time_view.h"
#include "jobspec/files/topology.h"
#include "jobspec/resolve.h"

namespace muster::cli {

// Returns the lines about the job and the machines, and a table of the memory of each pipeline
// stage. `forecast`: the output of `muster-trainer plan`.
std::string describe_plan(const jobspec::ResolvedJob& job, const jobspec::PlannedMachines& machines,
                          const nlohmann::json& forecast);

// A row of the table of `muster plan --vary`: one combination of values.
struct VariedPlan {
  std::vector<std::string> values;  // the values of the varied keys
  std::string problem;              // why the combination is not valid; empty: it is valid
  std::vector<std::string> warnings;
  std::string mesh;
  int64_t sequences = 0;  // sequences per step, of all ranks
  nlohmann::json forecast;
  // nullopt: the topology lacks a value that the forecast of the step time requires
  std::optional<StepFigures> figures;
};

// Returns a table with a line per combination: its values, the mesh, the sequences per step, the
// memory of the rank that needs the most, and the time of a step; and, if times are known, a bar of
// tokens/s per device for each.
std::string describe_variations(const std::vector<std::string>& keys,
                                const std::vector<VariedPlan>& plans);

}  // namespace muster::cli
