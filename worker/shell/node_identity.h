// The name, the labels and the taints of this node, from the options. Pure.
#pragma once

#include <string>

#include <absl/status/status.h>

#include "common/job/node_labels.h"
#include "worker/shell/options.h"

namespace muster::worker {

// Returns the worker's name: that of the host if the options have none.
std::string name_of(const WorkerOptions& options);

// The functions below return InvalidArgument, with the option and its value, if it is invalid.
absl::Status check_name(const std::string& name);
absl::Status check_labels(const WorkerOptions& options);

// Returns the node's labels and taints. Requires valid options. The last value of a repeated
// name wins.
NodeLabels labels_of(const WorkerOptions& options);

}  // namespace muster::worker
