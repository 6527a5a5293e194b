// The network between hosts as a tree: switches from the outermost to the leaf, then NVLink
// domains, then hosts. Selects hosts that are near each other. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "coordinator/core/placement/host_resources.h"
#include "coordinator/core/records/node_place.h"

namespace muster::coordinator {

// Returns whether `a` is ordered before `b`: by switches, then by domain, then by name, each in
// natural order.
bool comes_before(const Host& a, const Host& b);

// Assigns to all hosts of one domain the switches that these hosts share, so that they are adjacent
// in the order of comes_before(). A host without switches gets them, too. Hosts that share none
// keep theirs: domains of several parts of the network may have one name. Called before the hosts
// are sorted.
void gather_domains(std::vector<Host*> hosts);

// Returns the part of `switches` with the first `levels` names; empty if it has fewer names.
std::string_view first_switches(std::string_view switches, size_t levels);
// Returns the number of names in `switches`.
size_t levels_of(std::string_view switches);

// Selects `count` of `hosts` such that they are below as few switches and in as few domains as
// possible, and leaves large free parts of the network to other jobs. If `segment` > 1, the hosts
// of each `segment` consecutive positions of the result share a domain if possible; otherwise those
// of the largest possible divisor of `segment` do. Requires at least `count` hosts, which are
// elements of one vector in the order of comes_before(). The result has that order. Takes
// O(n log n) time for each level of the tree.
std::vector<const Host*> nearest_together(const std::vector<const Host*>& hosts, size_t count,
                                          int32_t segment);

}  // namespace muster::coordinator
