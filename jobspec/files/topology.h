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
//   ranks_share_node  optional, for CPUs: whether the ranks of a node divide all of it, so that
//                     fewer ranks than devices_per_node have larger shares; default false
//   bfloat16_speed    optional, for CPUs: the speed of bfloat16 relative to float32, on which the
//                     default of dtype depends
//   measured          optional: whether `muster bench device` has written the file. Jobs on this
//                     device then use it before other files; default false
//
// Optional keys, without which no time of a step is forecast (kTopologyNumbers). A job needs the
// keys of the links that it uses. Bandwidths are per device and direction:
//   bf16_tflops         data-sheet peak without sparsity, or the measured one; also fp8_tflops and
//                       fp32_tflops
//   memory_gb_s         bandwidth of the device's memory
//   multiprocessors     streaming multiprocessors that share the tiles of a GEMM; TPUs: none
//   node_link, node_gb_s, node_latency_us           to devices of the same node (or slice)
//   network_link, network_gb_s, network_latency_us  to other nodes; the links are names
//   host_gb_s           to host memory
//   storage_gb_s        of a node to the storage of data and checkpoints
//   calibrated_as       another topology with this device, whose calibration applies
//   power_w             power limit of a device, for energy
//   measured_power_w    power of a device in training, for energy
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/statusor.h>

namespace muster::jobspec {

// The jobs for which a forecast of the time of a step needs a number.
enum class NeededBy { kAll, kSeveralRanksPerNode, kSeveralNodes, kNone };

// The share of a node that determines a number of a rank (Topology::ranks_share_node): the rank's
// cores, or its part of the node. Idle cores leave no part of a network card idle.
enum class ShareOf { kNone, kCores, kNode };

// A number of a machine type.
struct TopologyNumber {
  std::string_view key;
  double max = 0;
  NeededBy needed_by = NeededBy::kAll;
  ShareOf share = ShareOf::kNone;
};
constexpr std::array<TopologyNumber, 14> kTopologyNumbers = {{
    {"bf16_tflops", 1e6, NeededBy::kAll, ShareOf::kCores},
    {"fp8_tflops", 1e6, NeededBy::kNone, ShareOf::kCores},
    {"fp32_tflops", 1e6, NeededBy::kAll, ShareOf::kCores},
    {"memory_gb_s", 1e6, NeededBy::kAll, ShareOf::kCores},
    {"multiprocessors", 1e4, NeededBy::kNone},
    {"node_gb_s", 1e5, NeededBy::kSeveralRanksPerNode, ShareOf::kCores},
    {"node_latency_us", 1e5, NeededBy::kSeveralRanksPerNode},
    {"network_gb_s", 1e5, NeededBy::kSeveralNodes, ShareOf::kNode},
    {"network_latency_us", 1e5, NeededBy::kSeveralNodes},
    {"host_gb_s", 1e5, NeededBy::kAll, ShareOf::kCores},
    {"storage_gb_s", 1e5, NeededBy::kNone},
    {"power_w", 1e5, NeededBy::kNone, ShareOf::kNode},
    {"measured_power_w", 1e5, NeededBy::kNone, ShareOf::kNode},
    {"bfloat16_speed", 1e3, NeededBy::kNone},
}};

// A machine type.
struct Topology {
  std::string name;  // the file's name without ".yml"
  std::string device;
  int64_t memory_mib = 0;
  int32_t devices_per_node = 0;
  int32_t cores_per_device = 1;
  bool has_backend = true;
  bool is_cpu = false;  // hardware: cpu
  bool ranks_share_node = false;
  bool is_measured = false;             // measured: true
  int32_t sharing_ranks = 1;            // ranks per node for which memory and `numbers` hold
  std::string node_link, network_link;  // names, such as "NVSwitch"
  std::string calibrated_as;            // a topology whose calibration applies; empty: only its own
  // The numbers of kTopologyNumbers, by key; a missing one is not in the map.
  std::map<std::string, double> numbers = {};

  // Returns the keys that a forecast of the time of a step needs, for a job with these numbers of
  // nodes and of ranks per node, and that the file does not have.
  std::vector<std::string> missing_times(int32_t nodes, int32_t ranks_per_node) const;
  bool has_times(int32_t nodes, int32_t ranks_per_node) const {
    return missing_times(nodes, ranks_per_node).empty();
  }
  // Returns the number of a key; nullopt: the file does not have it.
  std::optional<double> number(std::string_view key) const;
};

// Returns the topology for nodes with this number of ranks. With ranks_share_node, a device becomes
// a rank's share of a node: its memory, power and network, and the rates of its cores. A rank has
// whole cores, so ranks that do not divide the cores leave some of them idle.
Topology with_ranks_per_node(Topology topology, int32_t ranks);

// Reads a file of a machine type. Returns NotFound if there is no such file, and InvalidArgument
// with the file, the line, the key, its value and the allowed range.
absl::StatusOr<Topology> read_topology(const std::string& path);

// The machines that a job is planned for.
struct PlannedMachines {
  Topology topology;  // with_ranks_per_node(devices_per_node)
  int32_t nodes = 1;
  // Less than that of the topology if the job uses only a part of one node.
  int32_t devices_per_node = 1;

  int64_t devices() const { return int64_t{nodes} * devices_per_node; }
  // Topology's functions, for all of these devices.
  std::vector<std::string> missing_times() const {
    return topology.missing_times(nodes, devices_per_node);
  }
  bool has_times() const { return missing_times().empty(); }
};

// Parses a value of compile_topology, NAME-DEVICES or NAME (one node), and multiplies the nodes by
// `slices` (compile_topology_num_slices; -1: one). Searches NAME.yml in `folders`, in their order.
// Returns NotFound, with the nearest names, for an unknown name. Returns InvalidArgument for
// invalid numbers, for example of more devices than a node has that do not fill whole nodes.
absl::StatusOr<PlannedMachines> planned_machines(std::string_view text, int64_t slices,
                                                 const std::vector<std::string>& folders);

}  // namespace muster::jobspec
