// Workers as hosts for ranks: what of each is used, and which of them a job could have. Pure
// functions of the jobs, the fleet and what is known against its nodes.
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

// The use of all of the job's ranks on one node; no GPUs of a worker that is not known (null).
NodeUse use_of(const JobSpec& spec, const Worker* worker);
// The worker as a host with `use` of it taken.
Host host_of(const Worker& worker, const NodeUse& use);

// The use by ranks, orphans included. `live`: the jobs that have ranks, in order.
NodeUses uses_of_ranks(const JobTable& jobs, const std::vector<JobId>& live, const Fleet& fleet);
// The use by holds for jobs.
NodeUses uses_held(const JobTable& jobs, const Fleet& fleet);

// The request of the job, with its former nodes.
PlacementRequest request_of(const Job& job, int64_t unix_ns);

bool is_excluded_by_hand(const NodeBook& nodes, const WorkerName& name);
// A job that has no other place may take the excluded node: the exclusion is soft and, where it
// demands one, a recent check has passed. Requires that the worker is known.
bool may_be_taken(const NodeBook& nodes, const Worker& worker, Instant now);

// How many nodes the job could run on, now or when other jobs have ended.
int32_t nodes_possible(const Job& job, const Fleet& fleet, const NodeBook& nodes, int64_t unix_ns);

// Another node is free for each of `missing` nodes of the job, whose ranks are on `ranks`.
bool has_place_elsewhere(const Job& job, size_t missing, const RanksByWorker& ranks,
                         const JobTable& jobs, const std::vector<JobId>& live, const Fleet& fleet,
                         const NodeBook& nodes, const StepTime& time);

// A port for the program's rank 0: another one than the attempt before had, which may not have let
// go of it yet, and than other jobs have on that node. 0: its worker offers none, or all are taken.
int32_t free_program_port(const Job& job, const JobTable& jobs, const std::vector<JobId>& live,
                          const Worker& home);

}  // namespace muster::coordinator
