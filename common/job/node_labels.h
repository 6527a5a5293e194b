// Labels and taints of nodes, and the conditions of jobs for them. Pure.
//
// A label is a property of a node, "gpu=h100". A job's selector has conditions for labels that must
// all hold: "gpu=h100", or "zone!=a", which also holds on a node without the label. A taint of a
// node, "dedicated=evals", keeps all jobs away that do not tolerate it.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/status.h>

namespace muster {

// Bounds: a fleet's labels describe its hardware and its pools.
inline constexpr size_t kLabelsMax = 64;
inline constexpr size_t kTaintsMax = 16;
inline constexpr size_t kConditionsMax = 32;

struct NodeLabels {
  std::map<std::string, std::string> labels{};
  std::vector<std::string> taints{};

  friend bool operator==(const NodeLabels&, const NodeLabels&) = default;
};

// Check a label or a taint, NAME=VALUE, and a condition, NAME=VALUE or NAME!=VALUE. Errors name
// `field`, the value and what would be right.
absl::Status check_label(std::string_view field, std::string_view label);
absl::Status check_condition(std::string_view field, std::string_view condition);

// Returns whether the condition holds on a node with these labels. An invalid condition does not.
bool holds(std::string_view condition, const std::map<std::string, std::string>& labels);
// Returns the first condition of the selector that does not hold on the node, or the first of its
// taints that is not tolerated, as a clause: "it does not have gpu=h100"; "" if there is none.
std::string why_unsuitable(const NodeLabels& node, const std::vector<std::string>& selector,
                           const std::vector<std::string>& tolerations);
// Returns whether why_unsuitable() returns "". Allocates nothing.
bool suits(const NodeLabels& node, const std::vector<std::string>& selector,
           const std::vector<std::string>& tolerations);

}  // namespace muster
