// Texts about the NVLink domains of a job's nodes. Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/job/ids.h"
#include "coordinator/core/fleet/fleet.h"
#include "coordinator/core/placement/placement.h"

namespace muster::coordinator {

// Names the domains whose lost nodes are replaced by nodes of other domains: "; outside domain
// rack1". Empty if there are none.
std::string left_domains_text(const std::vector<WorkerName>& before,
                              const std::vector<WorkerName>& now, const Fleet& fleet);

// States how many groups of `segment_nodes` consecutive nodes have nodes of several domains, and
// names one of these groups. Empty if there are none.
std::string split_segments_text(const std::vector<WorkerName>& nodes, int32_t segment_nodes,
                                const Fleet& fleet);

// Names the domains in which more former nodes are missing than free nodes exist:
// "; domain rack1 lacks nodes". Without their number, so that the reason of a waiting job does not
// change whenever a worker connects. Empty if there are none.
std::string lacking_domains_text(const PlacementRequest& request, const std::vector<Host>& hosts);

}  // namespace muster::coordinator
