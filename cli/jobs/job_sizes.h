// Checks a job at each number of nodes on which it may run (min_nodes).
#pragma once

#include <functional>
#include <string>

#include <absl/status/status.h>

#include "muster/v1/muster.pb.h"

namespace muster::cli {

// Calls `check` with the trainer's config at the full size, then at each smaller one. Returns the
// first error; that of a smaller size names its number of nodes.
absl::Status check_each_size(const v1::JobSpec& spec,
                             const std::function<absl::Status(const std::string&)>& check);

}  // namespace muster::cli
