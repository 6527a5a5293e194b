// Strongly connected components of a directed graph, without recursion (Tarjan 1972). Pure; linear
// in nodes and edges.
#pragma once

#include <cstdint>
#include <vector>

namespace muster::coordinator {

// The component of each node, from 0: one from which another can be reached has the higher number.
// `edges` are the nodes' successors.
std::vector<uint32_t> components_of(const std::vector<std::vector<uint32_t>>& edges);

}  // namespace muster::coordinator
