// Finds the node whose lost network link explains why ranks have lost their peers. Pure.
#pragma once

#include <cstdint>
#include <optional>

#include "coordinator/core/records/job.h"

namespace muster::coordinator {

// Returns the fault of an attempt in which ranks report only lost peers, and the link of a node is
// down: on that node, whose error is then "network link lost". If links of several nodes are down,
// a switch may have failed: the fault names these nodes, and blames none. nullopt if no link is
// down, or if the attempt has only one node, because it needs no link.
std::optional<Fault> fault_of_lost_link(const Job& job, int64_t unix_ns);

}  // namespace muster::coordinator
