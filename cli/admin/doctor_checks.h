// The checks of `muster admin doctor` and `muster version --check`: they find problems of a
// coordinator and its fleet, and name the remedy. Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/finding.h"
#include "muster/v1/admin.pb.h"
#include "muster/v1/muster.pb.h"

namespace muster::cli {

// Returns one finding per check. `version`: this program's. `requested_unix_ns` and
// `answered_unix_ns`: this machine's wall clock before the request and after the answer.
std::vector<Finding> examine_coordinator(const v1::Coordinator& coordinator,
                                         const std::string& version, int64_t requested_unix_ns,
                                         int64_t answered_unix_ns);
// Returns the findings about the workers. `version`, `max_fds`: the coordinator's; an empty version
// and 0: unknown.
std::vector<Finding> examine_workers(const v1::ListWorkersResponse& workers,
                                     const std::string& version, int64_t max_fds);

// Return the findings about versions alone. `version`: this program's, or the coordinator's.
Finding version_finding(const v1::Coordinator& coordinator, const std::string& version);
Finding worker_versions_finding(const v1::ListWorkersResponse& workers, const std::string& version);

}  // namespace muster::cli
