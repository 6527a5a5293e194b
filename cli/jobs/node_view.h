// A node as text for people: its state, and if no ranks are placed on it, the reason. Control
// characters are escaped.
#pragma once

#include <cstdint>
#include <string>

#include "muster/v1/muster.pb.h"

namespace muster::cli {

// Returns a sentence such as "node7 is left out for 9m: worker lost: it was restarted; its check
// passed 12s ago".
std::string describe_node(const v1::WorkerInfo& worker, int64_t now_unix_ns);
// Returns the rows of `muster node list`.
std::string describe_node_list(const v1::ListWorkersResponse& workers, int64_t now_unix_ns);

// Returns the names of the node's GPUs; "-" for a node without GPUs.
std::string names_of_gpus(const v1::WorkerInfo& worker);
// Returns "3 of 8 used, NVIDIA H100 80GB HBM3"; "-" for a node without GPUs.
std::string describe_gpus(const v1::WorkerInfo& worker);

}  // namespace muster::cli
