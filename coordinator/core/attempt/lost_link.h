// Finds the node whose lost network link explains why ranks have lost their peers. Pure.
#pragma once

#include <cstdint>
#include <optional>

#include "coordinator/core/records/job.h"

namespace muster::coordinator {

// Returns the fault of an attempt in which ranks report only lost peers, and the link of a node is
// still down: on that node, whose error is then "network link lost". If links of several nodes were
// lost, a switch may have failed, and the fault names no single node. nullopt if no link is down.
std::optional<Fault> fault_of_lost_link(const Job& job, int64_t unix_ns);

}  // namespace muster::coordinator
