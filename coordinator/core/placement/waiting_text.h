// Texts for the reason why a job waits. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/ids.h"
#include "common/time.h"
#include "coordinator/core/placement/placement.h"
#include "coordinator/core/records/job.h"

namespace muster::coordinator {

// "4 workers, or at least 2, with 8 free slots each". `fewest`: the smallest sufficient number.
// `gpus_missing`: a worker has enough free slots but too few free GPUs.
std::string need_text(const JobSpec& spec, int32_t fewest, bool gpus_missing);

// Explains how the job's ranks would fit on the present workers, if no worker has as many slots as
// the job requires of each. Empty: they would not fit, or such a worker exists.
std::string fitting_text(const JobSpec& spec, PlacementRequest request,
                         const std::vector<Host>& hosts);

// Names connected workers that get no ranks, and the reason `why`; empty if `workers` is empty.
std::string passed_over_text(const std::vector<std::string>& workers, const char* why);

// States that `count` nodes are reserved while `awaited` is away, for at most `time`; empty for
// none.
std::string held_text(size_t count, const WorkerName& awaited, Duration time);

// "node3 in place of node2"; empty: every node has the ranks that it had.
std::string replaced_text(const std::vector<WorkerName>& before,
                          const std::vector<WorkerName>& now);

}  // namespace muster::coordinator
