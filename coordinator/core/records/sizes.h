// The sizes that a job may have, in nodes. Pure functions of its record.
//
// A job requests `nodes` nodes. With min_nodes it may continue with fewer after a fault: a user
// program with any number from min_nodes up, the trainer with the sizes for which its submitter has
// resolved a config.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "coordinator/core/records/job.h"

namespace muster::coordinator {

// Returns the job's largest size of at most `nodes_max` nodes; 0 if there is none.
int32_t largest_size(const JobSpec& spec, int64_t nodes_max);
// Returns the job's smallest size.
int32_t smallest_size(const JobSpec& spec);
// Returns the fewest nodes on which the job starts: its first attempt has the full size.
int32_t fewest_nodes(const Job& job);

// Returns the spec that workers receive for an attempt on `nodes` nodes: the job as if it had been
// submitted at that size. Requires that `nodes` is one of its sizes.
JobSpec spec_of_size(const JobSpec& spec, int32_t nodes);

// Returns the size of all texts of the spec in bytes.
size_t bytes_of(const JobSpec& spec);

// Returns the size of all specs in the job's record: its own, and those of an update and a trial.
size_t bytes_of(const Job& job);

// Returns the workers of a placement in the order of their ranks.
std::vector<WorkerName> nodes_of(const std::vector<RankPlacement>& placement);

// Returns the size of a placed job: "2 of 4 nodes".
std::string size_text(const Job& job);

}  // namespace muster::coordinator
