// Reads the state and the counters of the node's network devices from sysfs: ports of RDMA devices
// (InfiniBand, RoCE, EFA) and Ethernet interfaces. Sources: the Linux kernel's
// Documentation/ABI/stable/sysfs-class-infiniband, testing/sysfs-class-net, and
// drivers/infiniband/core/sysfs.c.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/statusor.h>

namespace muster::worker {

constexpr char kSysRoot[] = "/sys";
// The maximum number of devices that are read. Nodes with 8 GPUs have at most about 40.
constexpr size_t kNetworkDevicesMax = 128;

enum class NetworkKind { kInfiniBand, kRoce, kEfa, kEthernet };
// Returns "infiniband", "roce", "efa" or "ethernet", the value of a metric label.
std::string_view network_kind_name(NetworkKind kind);

enum class LinkState {
  kUnknown,   // it cannot be read, or the driver does not report it, as that of EFA
  kUp,        // packets can be sent
  kInactive,  // there is a link, but InfiniBand's subnet manager has not activated the port
  kDown,      // there is no link
  kDisabled,  // an administrator has switched the port or its interface off
};

// Counters as the device reports them. A counter that the device does not have, or that could not
// be read, is nullopt. They decrease when a driver is loaded again, and InfiniBand's when a tool
// such as `perfquery -R` resets them. InfiniBand's link losses end at 255 and its errors at 65,535.
struct NetworkCounters {
  std::optional<uint64_t> sent_bytes, received_bytes;
  std::optional<uint64_t> link_losses;      // an administrator's changes of an interface count, too
  std::optional<uint64_t> errors;           // damaged packets and symbols
  std::optional<uint64_t> drops;            // packets that were dropped for lack of buffers
  std::optional<uint64_t> retransmissions;  // packets that RDMA sent again, or requests for them
  std::optional<uint64_t> timeouts;         // RDMA packets without an acknowledgement in time
};

// A device at one moment.
struct NetworkDevice {
  std::string name;  // "mlx5_0 port 1" or "eth0"; printable
  NetworkKind kind = NetworkKind::kEthernet;
  LinkState link = LinkState::kUnknown;
  // Whether the loss of this link is a fault of the node. It is none for an interface beside ports
  // of InfiniBand or RoCE, unless the options name it, and for a member of a bond that is up.
  bool is_needed = false;
  std::string state;  // as the kernel reports it, for people: "ACTIVE, LinkUp" or "up"
  std::optional<double> gigabits_per_second;  // nominal rate of the link; nullopt: it is not up
  NetworkCounters counters;
};

// The devices to read.
struct NetworkSelection {
  std::string sys_root = kSysRoot;
  // Names, or beginnings of names with a "*" at the end. Devices that match one after a "!" are
  // omitted. If there is a pattern without "!", so are the devices that match none.
  std::vector<std::string> patterns;
};

// Returns the devices: first the ports of RDMA devices, then the interfaces, each by name. They
// have hardware and a driver. Virtual functions of this machine, their representors, software
// RDMA, iWARP, USB and wireless devices are omitted, and so are the interfaces of InfiniBand ports.
// Empty if there is no sysfs. Returns an error if a folder cannot be listed. Calls `on_device`, if
// there is one, before it reads a device. Blocks while a driver queries its device.
absl::StatusOr<std::vector<NetworkDevice>> read_network_devices(
    const NetworkSelection& selection,
    const std::function<void(const std::string& name)>& on_device = nullptr);

}  // namespace muster::worker
