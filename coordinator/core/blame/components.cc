#include "coordinator/core/blame/components.h"

#include <algorithm>
#include <cstddef>
#include <limits>

namespace muster::coordinator {

std::vector<uint32_t> components_of(const std::vector<std::vector<uint32_t>>& edges) {
  constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();
  struct Visit {
    uint32_t node;
    size_t next = 0;  // the next edge to follow
  };
  std::vector<uint32_t> component(edges.size(), kNone), order(edges.size(), kNone),
      lowest(edges.size());
  std::vector<uint32_t> open;  // nodes that were reached and are in no component yet
  std::vector<Visit> path;
  uint32_t reached = 0, components = 0;
  const auto enter = [&](uint32_t node) {
    order[node] = lowest[node] = reached++;
    open.push_back(node);
    path.push_back({node});
  };
  for (uint32_t start = 0; start < edges.size(); ++start) {
    if (order[start] == kNone) enter(start);
    while (!path.empty()) {
      const uint32_t node = path.back().node;
      if (path.back().next < edges[node].size()) {
        const uint32_t to = edges[node][path.back().next++];
        if (order[to] == kNone) {
          enter(to);
        } else if (component[to] == kNone) {
          lowest[node] = std::min(lowest[node], order[to]);
        }
        continue;
      }
      path.pop_back();
      if (!path.empty())
        lowest[path.back().node] = std::min(lowest[path.back().node], lowest[node]);
      if (lowest[node] != order[node]) continue;
      uint32_t member = kNone;
      while (member != node) {
        member = open.back();
        open.pop_back();
        component[member] = components;
      }
      ++components;
    }
  }
  return component;
}

}  // namespace muster::coordinator
