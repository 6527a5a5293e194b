// Converts workers to hosts for ranks: the resources in use, and the nodes available to a job. Pure
// functions of the jobs, the fleet and the suspicion records of nodes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/ids.h"
#include "coordinator/core/fleet/exclusions.h"
#include "coordinator/core/fleet/fleet.h"
#include "coordinator/core/placement/placement.h"
#include "coordinator/core/queue/job_table.h"
#include "coordinator/core/records/job.h"
#include "coordinator/core/records/step_time.h"

namespace muster::coordinator {

// Returns the resources used by all of the job's ranks on one node. No GPUs if the worker is not
// known (null).
NodeUse use_of(const JobSpec& spec, const Worker* worker);
// Returns the worker as a host of which `use` is taken.
Host host_of(const Worker& worker, const NodeUse& use);

// Returns the use by ranks, including orphans. `live`: the jobs that have ranks, by number.
NodeUses uses_of_ranks(const JobTable& jobs, const std::vector<JobId>& live, const Fleet& fleet);
// Returns the use by reservations for jobs.
NodeUses uses_held(const JobTable& jobs, const Fleet& fleet);

// Returns the placement request of the job, with its former nodes.
PlacementRequest request_of(const Job& job, int64_t unix_ns);

bool is_excluded_by_hand(const NodeBook& nodes, const WorkerName& name);
// Returns whether a job that has no other node may use the excluded node: the exclusion is soft
// and, if it requires a check, a recent one has passed. Requires that the worker is known.
bool may_be_taken(const NodeBook& nodes, const Worker& worker, Instant now);

// Returns the number of nodes on which the job could run now, or after other jobs have ended.
int32_t nodes_possible(const Job& job, const Fleet& fleet, const NodeBook& nodes, int64_t unix_ns);

// Returns whether another node is free for each of `missing` nodes of the job. `ranks`: where its
// ranks are.
bool has_place_elsewhere(const Job& job, size_t missing, const RanksByWorker& ranks,
                         const JobTable& jobs, const std::vector<JobId>& live, const Fleet& fleet,
                         const NodeBook& nodes, const StepTime& time);

// Returns a port for the program's rank 0 on `home`: not the port of the attempt before, which may
// still be in use, nor that of another job on this node. 0: the worker offers no ports, or all are
// taken.
int32_t free_program_port(const Job& job, const JobTable& jobs, const std::vector<JobId>& live,
                          const Worker& home);

}  // namespace muster::coordinator
