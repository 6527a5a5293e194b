// Converts workers to hosts for ranks: computes the resources in use, and the nodes available to a
// job. Pure functions of the jobs, the fleet and the suspicion records of nodes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/job/ids.h"
#include "coordinator/core/fleet/exclusions.h"
#include "coordinator/core/fleet/fleet.h"
#include "coordinator/core/placement/placement.h"
#include "coordinator/core/queue/job_table.h"
#include "coordinator/core/records/core_time.h"
#include "coordinator/core/records/job.h"

namespace muster::coordinator {

// Returns the slots and GPUs that the job's ranks use together on one node. Without GPUs if
// `worker` is null: the worker is not known.
NodeUse use_of(const JobSpec& spec, const Worker* worker);
// Returns the worker as a host, with `use` subtracted from its free slots and GPUs.
Host host_of(const Worker& worker, const NodeUse& use);

// Returns the slots and GPUs that ranks use, by worker. Orphans (ranks of no current attempt)
// count. `live`: the jobs that have ranks, by number.
NodeUses uses_of_ranks(const JobTable& jobs, const std::vector<JobId>& live, const Fleet& fleet);
// Returns the slots and GPUs that are reserved for jobs, by worker.
NodeUses uses_held(const JobTable& jobs, const Fleet& fleet);
// Return the same for one worker.
NodeUse rank_use_on(const JobTable& jobs, const std::vector<JobId>& live, const Fleet& fleet,
                    const WorkerName& name);
NodeUse held_use_on(const JobTable& jobs, const Fleet& fleet, const WorkerName& name);

// Returns the job's placement request, with its former nodes and the nodes to avoid.
PlacementRequest request_of(const Job& job, int64_t unix_ns);
// Returns the same with the places of the former nodes. Nodes whose links were down together have
// none: their switch may have failed, so the nodes below it are suspect.
PlacementRequest request_with_places(const Job& job, const Fleet& fleet, int64_t unix_ns);

// Returns whether the node is excluded until a user admits it, or until a time that a user has set.
bool awaits_admission(const NodeBook& nodes, const WorkerName& name);
// Returns whether a job that has no other node may use the excluded node: the exclusion is soft,
// and the node has recently passed a check if the exclusion requires one. Requires that the worker
// is known.
bool may_be_last_resort(const NodeBook& nodes, const Worker& worker, Instant now);

// Returns the number of nodes on which the job could run now or after other jobs have ended.
int32_t nodes_possible(const Job& job, const Fleet& fleet, const NodeBook& nodes, int64_t unix_ns);

// Returns whether a free node can replace each of the job's slow nodes: none that this or another
// job avoids as slow, none with a planned drain, and for a job with segments one of the same
// domains. `ranks`: the job's present ranks.
bool has_better_nodes(const Job& job, const std::vector<SlowNode>& slow, const RanksByWorker& ranks,
                      const JobTable& jobs, const std::vector<JobId>& live, const Fleet& fleet,
                      const NodeBook& nodes, const CoreTime& time);

// Returns whether a free node can replace each of `missing` nodes of the job. `ranks`: the job's
// present ranks. False if the job has no restarts.
bool has_replacement_nodes(const Job& job, size_t missing, const RanksByWorker& ranks,
                           const JobTable& jobs, const std::vector<JobId>& live, const Fleet& fleet,
                           const NodeBook& nodes, const CoreTime& time);

// Returns a port on `home` for rank 0 of the program. Skips the port of the previous attempt, which
// may still be in use, and the ports of other jobs on the node. Returns 0 if the worker offers no
// ports or all are in use.
int32_t free_program_port(const Job& job, const JobTable& jobs, const std::vector<JobId>& live,
                          const Worker& home);

}  // namespace muster::coordinator
