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
//   hardware          optional: gpu, or cpu if a device is a rank's share of a node's CPUs and
//                     memory; default gpu
//
// Optional keys, without which no time of a step is forecast (kTopologyNumbers). Bandwidths are per
// device and direction:
//   bf16_tflops         data-sheet peak without sparsity; also fp8_tflops and fp32_tflops
//   memory_gb_s         bandwidth of the device's memory
//   multiprocessors     streaming multiprocessors that share the tiles of a GEMM; TPUs: none
//   node_link, node_gb_s, node_latency_us           to devices of the same node (or slice)
//   network_link, network_gb_s, network_latency_us  to other nodes; the links are names
//   host_gb_s           to host memory
//   storage_gb_s        of a node to the storage of data and checkpoints
//   calibrated_as       another topology with this device, whose calibration applies
//   power_w             power limit of a device, for energy
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/statusor.h>

namespace muster::jobspec {

// A number of a machine type that a forecast of the time of a step reads.
struct TopologyNumber {
  std::string_view key;
  double max = 0;
  bool is_required = true;  // a forecast needs it
};
constexpr std::array<TopologyNumber, 12> kTopologyNumbers = {{
    {"bf16_tflops", 1e6},
    {"fp8_tflops", 1e6, false},
    {"fp32_tflops", 1e6},
    {"memory_gb_s", 1e6},
    {"multiprocessors", 1e4, false},
    {"node_gb_s", 1e5},
    {"node_latency_us", 1e5},
    {"network_gb_s", 1e5},
    {"network_latency_us", 1e5},
    {"host_gb_s", 1e5},
    {"storage_gb_s", 1e5, false},
    {"power_w", 1e5, false},
}};

// A machine type.
struct Topology {
  std::string name;  // the file's name without ".yml"
  std::string device;
  int64_t memory_mib = 0;
  int32_t devices_per_node = 0;
  int32_t cores_per_device = 1;
  bool has_backend = true;
  bool is_cpu = false;                  // hardware: cpu
  std::string node_link, network_link;  // names, such as "NVSwitch"
  std::string calibrated_as;            // a topology whose calibration applies; empty: only its own
  // The numbers of kTopologyNumbers, by key; a missing one is not in the map.
  std::map<std::string, double> numbers = {};

  // Returns whether the file has what a forecast of the time of a step needs.
  bool has_times() const { return missing_times().empty(); }
  // Returns the keys that such a forecast needs and the file does not have.
  std::vector<std::string> missing_times() const;
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
