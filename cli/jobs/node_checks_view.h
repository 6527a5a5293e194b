// Deep checks of nodes as text for people, and as JSON. Control characters are escaped.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "muster/v1/muster.pb.h"

namespace muster::cli {

// Returns a row for each node, with a column for each measurement, and the findings.
std::string describe_sweep(const v1::NodeSweep& sweep);
// Returns a row for each result.
std::string describe_node_checks(const v1::ListNodeChecksResponse& checks, int64_t now_unix_ns);
nlohmann::json sweep_to_json(const v1::NodeSweep& sweep);
nlohmann::json node_checks_to_json(const v1::ListNodeChecksResponse& checks);
// Returns whether no node failed, nothing was found, and the named nodes have passed.
bool is_good(const v1::NodeSweep& sweep, const std::vector<std::string>& named);

}  // namespace muster::cli
