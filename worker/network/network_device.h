// Reads the state and the counters of the node's network devices from sysfs: ports of RDMA devices
// (InfiniBand, RoCE, EFA) and Ethernet interfaces. Sources: the Linux kernel's
// Documentation/ABI/stable/sysfs-class-infiniband and testing/sysfs-class-net.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace muster::worker {

constexpr char kSysRoot[] = "/sys";
// The maximum number of devices that are read. Nodes with 8 GPUs have at most about 40.
constexpr size_t kNetworkDevicesMax = 128;

enum class NetworkKind { kInfiniBand, kRoce, kEfa, kEthernet };
// Returns "infiniband", "roce", "efa" or "ethernet", the value of a metric label.
std::string_view network_kind_name(NetworkKind kind);

// Counters since the driver was loaded. A counter that the device does not have is nullopt.
struct NetworkCounters {
  std::optional<uint64_t> sent_bytes, received_bytes;
  std::optional<uint64_t> link_losses;      // how often the link was lost
  std::optional<uint64_t> errors;           // damaged packets and symbols
  std::optional<uint64_t> drops;            // packets that were dropped for lack of buffers
  std::optional<uint64_t> retransmissions;  // packets that RDMA sent again
  std::optional<uint64_t> timeouts;         // RDMA packets without an acknowledgement in time
};

// A device at one moment.
struct NetworkDevice {
  std::string name;  // "mlx5_0 port 1" or "eth0"; printable
  NetworkKind kind = NetworkKind::kEthernet;
  bool is_up = false;
  // true: an administrator has switched the interface off; unknown for RDMA devices
  bool is_switched_off = false;
  std::string state;  // as the kernel reports it, for people: "ACTIVE, LinkUp" or "up"
  std::optional<double> gigabits_per_second;  // nominal rate of the link
  NetworkCounters counters;
};

// Returns the devices below `sys_root`, in the order of their names. Virtual interfaces, which have
// no hardware of their own, are omitted, and so are the interfaces of InfiniBand ports. Empty if
// there is no sysfs. Blocks while a driver queries its device for counters.
std::vector<NetworkDevice> read_network_devices(const std::string& sys_root);

}  // namespace muster::worker
