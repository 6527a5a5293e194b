// The place of a node in the cluster's network: values without behaviour.
#pragma once

#include <string>

namespace muster::coordinator {

struct NodePlace {
  // The switches above the node, outermost first: "spine.leaf3". Empty: unknown.
  std::string switches{};
  // The NVLink domain: the nodes whose GPUs reach each other by NVLink. Empty: unknown, or the node
  // is alone in its domain.
  std::string domain{};

  bool is_known() const { return !switches.empty() || !domain.empty(); }
  friend bool operator==(const NodePlace&, const NodePlace&) = default;
};

}  // namespace muster::coordinator
