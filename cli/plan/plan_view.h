// The result of `muster plan` as text. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "jobspec/resolve.h"
#include "jobspec/topology.h"

namespace muster::cli {

// Returns the lines about the job and the machines, and a table of the memory of each pipeline
// stage. `forecast`: the output of `muster-trainer plan`.
std::string describe_plan(const jobspec::ResolvedJob& job, const jobspec::PlannedMachines& machines,
                          const nlohmann::json& forecast);

// A row of the table of `muster plan --vary`.
struct VariedPlan {
  std::vector<std::string> values;  // of the varied keys
  std::string problem;              // the reason why this combination is not valid; else empty
  std::string mesh;
  int64_t sequences = 0;  // of a step
  nlohmann::json forecast;
};

// Returns a table with a line per combination: its values, the mesh, and the memory of the rank
// that needs the most.
std::string describe_variations(const std::vector<std::string>& keys,
                                const std::vector<VariedPlan>& plans);

// Returns the sequences of all ranks in a step.
int64_t sequences_of_step(const jobspec::ResolvedJob& job);

}  // namespace muster::cli
