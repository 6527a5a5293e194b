// How many nodes a job may have. Pure functions of its record.
//
// A job asks for `nodes`. With min_nodes it may go on with fewer after a fault: a program with any
// number from there on, the trainer with those for which its submitter has resolved a config.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "coordinator/core/records/job.h"

namespace muster::coordinator {

// The largest size of at most `nodes_max` nodes; 0: there is none.
int32_t largest_size(const JobSpec& spec, int64_t nodes_max);
int32_t smallest_size(const JobSpec& spec);

// Returns the spec that workers of an attempt on `nodes` nodes receive: the job as if it had been
// asked for at that size. Requires one of its sizes.
JobSpec spec_of_size(const JobSpec& spec, int32_t nodes);

// Workers by the order of their ranks.
std::vector<WorkerName> nodes_of(const std::vector<RankPlacement>& placement);

// "2 of 4 nodes", of a placed job.
std::string size_text(const Job& job);

}  // namespace muster::coordinator
