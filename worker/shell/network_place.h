// The place of the worker's node in the network, from the worker's options.
#pragma once

#include <string>

#include <absl/status/statusor.h>

#include "worker/shell/options.h"

namespace muster::worker {

struct NetworkPlace {
  std::string switches;  // outermost first: "spine.leaf3"; empty: unknown
  std::string domain;    // the NVLink domain; empty: unknown
};

// Reads `switches_file` if that is set: an init container may have written it. Its first line is
// empty for a node without switches, and its second line, which may be missing, for a node without
// a domain. Returns NotFound if the file cannot be read.
absl::StatusOr<NetworkPlace> read_network_place(const WorkerOptions& options);

}  // namespace muster::worker
