#include "worker/network/network_device.h"

#include <algorithm>
#include <filesystem>
#include <span>
#include <system_error>

#include <absl/strings/ascii.h>
#include <absl/strings/match.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>

#include "common/files/file_read.h"
#include "common/text/absl_view.h"
#include "common/text/escape.h"
#include "common/text/natural_order.h"

namespace muster::worker {
namespace {

constexpr size_t kAttributeBytesMax = 4096;  // sysfs has one page per attribute
constexpr size_t kNameBytesMax = 64;

using Path = std::filesystem::path;

// Returns an attribute of sysfs without white space at its ends; empty if it cannot be read, as the
// speed of an interface that is down.
std::string attribute(const Path& path) {
  const auto text = read_file_up_to(kAttributeBytesMax, path, "sysfs");
  return text.ok() ? printable(std::string(absl::StripAsciiWhitespace(*text)), kNameBytesMax) : "";
}

std::optional<uint64_t> number(const Path& path) {
  uint64_t value = 0;
  if (!absl::SimpleAtoi(attribute(path), &value)) return std::nullopt;
  return value;
}

// Returns the sum of the attributes that exist; nullopt if none does.
std::optional<uint64_t> sum(const Path& folder, std::span<const std::string_view> names) {
  std::optional<uint64_t> total;
  for (const std::string_view name : names)
    if (const auto value = number(folder / name)) total = total.value_or(0) + *value;
  return total;
}

std::vector<std::string> entries(const Path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end;
       !error && entry != end && names.size() < kNetworkDevicesMax; entry.increment(error))
    names.push_back(entry->path().filename());
  std::ranges::sort(names,
                    [](const std::string& a, const std::string& b) { return natural_less(a, b); });
  return names;
}

// Returns "ACTIVE" of "4: ACTIVE".
std::string after_colon(const std::string& text) {
  const size_t colon = text.find(": ");
  return colon == std::string::npos ? text : text.substr(colon + 2);
}

// Returns 400 of "400 Gb/sec (4X NDR)".
std::optional<double> leading_number(const std::string& text) {
  double value = 0;
  if (!absl::SimpleAtod(text.substr(0, text.find(' ')), &value) || value <= 0) return std::nullopt;
  return value;
}

NetworkKind kind_of_port(const std::string& device, const std::string& link_layer) {
  if (link_layer == "InfiniBand") return NetworkKind::kInfiniBand;
  return absl::StartsWith(device, "efa") || absl::StartsWith(device, "rdmap") ||
                 link_layer == "Unspecified"
             ? NetworkKind::kEfa
             : NetworkKind::kRoce;
}

NetworkCounters port_counters(const Path& port) {
  constexpr std::string_view kErrors[] = {"symbol_error", "port_rcv_errors",
                                          "local_link_integrity_errors"};
  constexpr std::string_view kDrops[] = {"port_xmit_discards"};
  // Names of mlx5, EFA and bnxt_re.
  constexpr std::string_view kHardwareDrops[] = {"rx_drops", "out_of_buffer"};
  constexpr std::string_view kRetransmissions[] = {"packet_seq_err", "roce_adp_retrans",
                                                   "retrans_pkts", "to_retransmits"};
  constexpr std::string_view kTimeouts[] = {"local_ack_timeout_err", "retrans_timeout_events",
                                            "unresponsive_remote_events"};
  const Path counters = port / "counters";
  const Path hardware = port / "hw_counters";
  NetworkCounters result;
  constexpr uint64_t kWord = 4;  // InfiniBand counts data in words of 4 bytes
  if (const auto words = number(counters / "port_xmit_data")) result.sent_bytes = kWord * *words;
  if (const auto words = number(counters / "port_rcv_data")) result.received_bytes = kWord * *words;
  if (!result.sent_bytes) result.sent_bytes = number(hardware / "tx_bytes");
  if (!result.received_bytes) result.received_bytes = number(hardware / "rx_bytes");
  result.link_losses = number(counters / "link_downed");
  result.errors = sum(counters, kErrors);
  result.drops = sum(counters, kDrops);
  if (const auto more = sum(hardware, kHardwareDrops))
    result.drops = result.drops.value_or(0) + *more;
  result.retransmissions = sum(hardware, kRetransmissions);
  result.timeouts = sum(hardware, kTimeouts);
  return result;
}

void add_rdma_ports(const Path& root, std::vector<NetworkDevice>& devices) {
  for (const std::string& device : entries(root)) {
    for (const std::string& port : entries(root / device / "ports")) {
      const Path folder = root / device / "ports" / port;
      const std::string state = after_colon(attribute(folder / "state"));
      if (state.empty()) continue;
      NetworkDevice one;
      one.name = printable(absl::StrCat(device, " port ", port), kNameBytesMax);
      one.kind = kind_of_port(device, attribute(folder / "link_layer"));
      one.is_up = state == "ACTIVE";
      const std::string physical = after_colon(attribute(folder / "phys_state"));
      one.state = absl::StrCat(state, physical.empty() ? "" : ", ", physical);
      if (one.is_up) one.gigabits_per_second = leading_number(attribute(folder / "rate"));
      one.counters = port_counters(folder);
      devices.push_back(std::move(one));
    }
  }
}

NetworkCounters interface_counters(const Path& interface) {
  constexpr std::string_view kErrors[] = {"rx_errors", "tx_errors"};
  constexpr std::string_view kDrops[] = {"rx_missed_errors", "tx_dropped"};
  const Path statistics = interface / "statistics";
  NetworkCounters result;
  result.sent_bytes = number(statistics / "tx_bytes");
  result.received_bytes = number(statistics / "rx_bytes");
  result.link_losses = number(interface / "carrier_down_count");
  result.errors = sum(statistics, kErrors);
  result.drops = sum(statistics, kDrops);
  return result;
}

void add_interfaces(const Path& root, std::vector<NetworkDevice>& devices) {
  for (const std::string& name : entries(root)) {
    const Path folder = root / name;
    std::error_code error;
    constexpr uint64_t kEthernetType = 1;  // ARPHRD_ETHER
    if (!std::filesystem::exists(folder / "device", error) ||
        number(folder / "type") != kEthernetType)
      continue;
    NetworkDevice one;
    one.name = printable(name, kNameBytesMax);
    one.state = attribute(folder / "operstate");
    // Some drivers never report their state; then the carrier shows it.
    one.is_up = one.state == "up" || (one.state == "unknown" && number(folder / "carrier") == 1);
    uint64_t flags = 0;
    constexpr uint64_t kUp = 1;  // IFF_UP
    one.is_switched_off =
        absl::SimpleHexAtoi(attribute(folder / "flags"), &flags) && (flags & kUp) == 0;
    constexpr double kMegabitsPerGigabit = 1000;
    if (const auto speed = number(folder / "speed"); one.is_up && speed && *speed > 0)
      one.gigabits_per_second = static_cast<double>(*speed) / kMegabitsPerGigabit;
    one.counters = interface_counters(folder);
    devices.push_back(std::move(one));
  }
}

}  // namespace

std::string_view network_kind_name(NetworkKind kind) {
  switch (kind) {
    case NetworkKind::kInfiniBand:
      return "infiniband";
    case NetworkKind::kRoce:
      return "roce";
    case NetworkKind::kEfa:
      return "efa";
    case NetworkKind::kEthernet:
      return "ethernet";
  }
  return "ethernet";
}

std::vector<NetworkDevice> read_network_devices(const std::string& sys_root) {
  std::vector<NetworkDevice> devices;
  add_rdma_ports(Path(sys_root) / "class/infiniband", devices);
  add_interfaces(Path(sys_root) / "class/net", devices);
  if (devices.size() > kNetworkDevicesMax) devices.resize(kNetworkDevicesMax);
  return devices;
}

}  // namespace muster::worker
