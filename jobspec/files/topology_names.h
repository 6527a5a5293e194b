// Finds the machine type of configs/topologies that a name from another system denotes.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "jobspec/files/topology.h"

namespace muster::jobspec {

// Reads all machine types with accelerators in `folders`, by name. A file in an earlier folder
// replaces one of the same name in a later folder. Skips files with errors: `muster plan` reports
// those.
std::vector<Topology> all_topologies(const std::vector<std::string>& folders);

// Returns the first machine type in `folders` that was measured on this type of CPU with this
// number of cores. Skips files with errors.
std::optional<Topology> measured_cpu(std::string_view device, int32_t cores,
                                     const std::vector<std::string>& folders);

// Returns the machine type that `name` denotes. `name` is a GPU type of Slurm's generic resources
// ("h100", "nvidia_h100_80gb_hbm3"), a label's value in Kubernetes ("NVIDIA-H100-80GB-HBM3",
// "nvidia-h100-80gb"), or a cloud's instance type ("p5.48xlarge", "a3-highgpu-8g"). Several names
// leave the memory of the GPU open ("a100"); the result is then the type with the most memory of
// those that may be meant. Returns
// nullopt if no type has such a name. Pure.
std::optional<Topology> topology_named(std::string_view name,
                                       const std::vector<Topology>& topologies);

// Returns whether the name, for which topology_named() returns this type, is one of its device, as
// "h100" and "NVIDIA-H100-80GB-HBM3" are, and not one of the machine ("p5.48xlarge"). Pure.
bool denotes_device(std::string_view name, const Topology& topology);

// Returns the type with the most memory per device of those on which the trainer runs. nullopt:
// there is none. Pure.
std::optional<Topology> largest_topology(const std::vector<Topology>& topologies);

}  // namespace muster::jobspec
