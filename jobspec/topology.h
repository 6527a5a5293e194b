// Machine types, for which `muster plan` can plan a job without the machines. Each is a file
// configs/topologies/NAME.yml. The value of MaxText's key compile_topology is such a name with a
// number of devices: "h100-64", "v5e-256".
//
// Keys of a file:
//   device            the device's name as its driver reports it: "NVIDIA H100 80GB HBM3"
//   memory_mib        MiB of a device that a process can allocate before it has a CUDA context
//   devices_per_node  devices per node (TPUs: per slice); the ici_* axes of a mesh lie inside one
//   cores_per_device  optional, for types whose values count cores: "v5p-16" has 8 devices of 2
//                     cores; default 1
//   has_backend       optional: whether the trainer runs on the device; default true
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/statusor.h>

namespace muster::jobspec {

// A machine type.
struct Topology {
  std::string name;  // the file's name without ".yml"
  std::string device;
  int64_t memory_mib = 0;
  int32_t devices_per_node = 0;
  int32_t cores_per_device = 1;
  bool has_backend = true;
};

// Reads a file of a machine type. Returns NotFound if there is no such file, and InvalidArgument
// with the file, the line, the key, its value and the allowed range.
absl::StatusOr<Topology> read_topology(const std::string& path);

// The machines that a job is planned for.
struct PlannedMachines {
  Topology topology;
  int32_t nodes = 1;
  // Less than that of the topology if the job uses only a part of one node.
  int32_t devices_per_node = 1;

  int64_t devices() const { return int64_t{nodes} * devices_per_node; }
};

// Parses a value of compile_topology, NAME-DEVICES or NAME (one node), and multiplies the nodes by
// `slices` (compile_topology_num_slices; -1: one). Searches NAME.yml in `folders`, in their order.
// Returns NotFound, with the nearest names, for an unknown name. Returns InvalidArgument for
// invalid numbers, for example of more devices than a node has that do not fill whole nodes.
absl::StatusOr<PlannedMachines> planned_machines(std::string_view text, int64_t slices,
                                                 const std::vector<std::string>& folders);

}  // namespace muster::jobspec
