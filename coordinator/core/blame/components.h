// Strongly connected components of a directed graph, without recursion (Tarjan 1972). Pure; linear
// in nodes and edges.
#pragma once

#include <cstdint>
#include <vector>

namespace muster::coordinator {

// Returns the component of each node, numbered from 0. A component has a higher number than every
// other component that it can reach. `edges`: the successors of each node.
std::vector<uint32_t> components_of(const std::vector<std::vector<uint32_t>>& edges);

}  // namespace muster::coordinator
