// Texts for the reason why a job waits. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/job/ids.h"
#include "common/time/time.h"
#include "coordinator/core/placement/placement.h"
#include "coordinator/core/records/job.h"

namespace muster::coordinator {

// Describes the workers that the job needs: "4 workers, or at least 2, with 8 free slots each".
// `fewest`: the smallest sufficient number of workers. `gpus_missing`: some worker has enough free
// slots but too few free GPUs.
std::string need_text(const JobSpec& spec, int32_t fewest, bool gpus_missing);

// Describes the largest worker, and another shape of the job that would fit on the present workers.
// Returns an empty text if some worker has as many slots as the job requires per node, or if there
// are no workers.
std::string fitting_text(const JobSpec& spec, PlacementRequest request,
                         const std::vector<Host>& hosts);

// Lists connected workers that get no ranks, with the reason `why`; empty if `workers` is empty.
std::string passed_over_text(const std::vector<std::string>& workers, const char* why);

// States that `count` nodes are reserved for at most `time` while `awaited` is away; empty if
// `count` is 0.
std::string held_text(size_t count, const WorkerName& awaited, Duration time);

// Returns "node3 in place of node2"; empty if every node has the same ranks as before.
std::string replaced_text(const std::vector<WorkerName>& before,
                          const std::vector<WorkerName>& now);

}  // namespace muster::coordinator
