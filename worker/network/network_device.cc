#include "worker/network/network_device.h"

#include <algorithm>
#include <filesystem>
#include <span>
#include <system_error>
#include <utility>

#include <absl/status/status.h>
#include <absl/strings/ascii.h>
#include <absl/strings/match.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>

#include "common/files/errno_status.h"
#include "common/files/file_read.h"
#include "common/text/absl_view.h"
#include "common/text/escape.h"
#include "common/text/natural_order.h"

namespace muster::worker {
namespace {

constexpr size_t kAttributeBytesMax = 4096;  // sysfs has one page per attribute
constexpr size_t kTextBytesMax = 64;         // the maximum of an attribute that people read
// The kernel's names have at most 63 bytes; " port 255" follows.
constexpr size_t kNameBytesMax = 128;
// A node may have thousands of virtual interfaces, one for each container.
constexpr size_t kEntriesMax = 65'536;

using Path = std::filesystem::path;

bool path_exists(const Path& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

// Returns an attribute of sysfs without white space at its ends; empty if it cannot be read, as the
// speed of an interface that is down.
std::string attribute(const Path& path) {
  const auto text = read_file_up_to(kAttributeBytesMax, path, "sysfs");
  return text.ok() ? printable(std::string(absl::StripAsciiWhitespace(*text)), kTextBytesMax) : "";
}

std::optional<uint64_t> number(const Path& path) {
  uint64_t value = 0;
  if (!absl::SimpleAtoi(attribute(path), &value)) return std::nullopt;
  return value;
}

// Returns the sum of the attributes that exist; nullopt if none does, or if one of them has no
// value now: a sum without it would jump at the next reading.
std::optional<uint64_t> sum(const Path& folder, std::span<const std::string_view> names) {
  std::optional<uint64_t> total;
  for (const std::string_view name : names) {
    if (!path_exists(folder / name)) continue;
    const auto value = number(folder / name);
    if (!value) return std::nullopt;
    total = total.value_or(0) + *value;
  }
  return total;
}

// Returns the names in `folder`, in their order, for which `is_wanted` holds; empty if there is no
// such folder.
absl::StatusOr<std::vector<std::string>> entries(
    const Path& folder, const std::function<bool(const std::string&)>& is_wanted) {
  std::vector<std::string> names;
  std::error_code error;
  size_t count = 0;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    if (++count > kEntriesMax)
      return absl::ResourceExhaustedError(
          absl::StrCat(folder.string(), " has more than ", kEntriesMax, " entries"));
    if (std::string name = entry->path().filename(); is_wanted(name))
      names.push_back(std::move(name));
  }
  if (error && error != std::errc::no_such_file_or_directory)
    return errno_status(error.value(), absl::StrCat("listing ", folder.string()));
  std::ranges::sort(names,
                    [](const std::string& a, const std::string& b) { return natural_less(a, b); });
  return names;
}

std::string name_of_link(const Path& link) {
  std::error_code error;
  return std::filesystem::read_symlink(link, error).filename();
}

bool matches(std::string_view pattern, std::string_view name) {
  return pattern.ends_with('*') ? name.starts_with(pattern.substr(0, pattern.size() - 1))
                                : name == pattern;
}

// Returns whether a pattern of the options includes the name.
bool is_named(const NetworkSelection& selection, std::string_view name) {
  return std::ranges::any_of(selection.patterns, [&](std::string_view pattern) {
    return !pattern.starts_with('!') && matches(pattern, name);
  });
}

bool is_selected(const NetworkSelection& selection, std::string_view name) {
  bool names_any = false;
  for (const std::string_view pattern : selection.patterns) {
    if (pattern.starts_with('!') && matches(pattern.substr(1), name)) return false;
    names_any = names_any || !pattern.starts_with('!');
  }
  return !names_any || is_named(selection, name);
}

// Returns whether the device of sysfs has hardware of its own: a driver, and no physical function
// of which it is a virtual one.
bool has_hardware(const Path& device) {
  return path_exists(device / "driver") && !path_exists(device / "physfn") &&
         name_of_link(device / "subsystem") != "usb";
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

// Returns whether an administrator has switched the interface on; nullopt: it is not known, for
// example because the interface belongs to a container.
std::optional<bool> is_switched_on(const Path& interface) {
  uint64_t flags = 0;
  constexpr uint64_t kUp = 1;  // IFF_UP
  if (!absl::SimpleHexAtoi(attribute(interface / "flags"), &flags)) return std::nullopt;
  return (flags & kUp) != 0;
}

// Returns whether the interface is a member of a bond that is up, or of a virtual machine's
// interface that can do without it.
bool has_substitute(const Path& interface) {
  const Path master = interface / "master";
  return (path_exists(master / "bonding") || path_exists(master / "device")) &&
         attribute(master / "operstate") == "up";
}

NetworkCounters port_counters(const Path& port) {
  // Names of the PMA counters, and of mlx5, EFA and bnxt_re.
  constexpr std::string_view kErrors[] = {"counters/symbol_error", "counters/port_rcv_errors",
                                          "counters/local_link_integrity_errors"};
  constexpr std::string_view kDrops[] = {"counters/port_xmit_discards", "hw_counters/rx_drops",
                                         "hw_counters/out_of_buffer"};
  constexpr std::string_view kRetransmissions[] = {
      "hw_counters/packet_seq_err", "hw_counters/roce_adp_retrans", "hw_counters/retrans_pkts"};
  constexpr std::string_view kTimeouts[] = {
      "hw_counters/local_ack_timeout_err", "hw_counters/to_retransmits",
      "hw_counters/retrans_timeout_events", "hw_counters/unresponsive_remote_events"};
  NetworkCounters result;
  constexpr uint64_t kWord = 4;  // InfiniBand counts data in words of 4 bytes
  if (const auto words = number(port / "counters/port_xmit_data"))
    result.sent_bytes = kWord * *words;
  if (const auto words = number(port / "counters/port_rcv_data"))
    result.received_bytes = kWord * *words;
  if (!result.sent_bytes) result.sent_bytes = number(port / "hw_counters/tx_bytes");
  if (!result.received_bytes) result.received_bytes = number(port / "hw_counters/rx_bytes");
  result.link_losses = number(port / "counters/link_downed");
  result.errors = sum(port, kErrors);
  result.drops = sum(port, kDrops);
  result.retransmissions = sum(port, kRetransmissions);
  result.timeouts = sum(port, kTimeouts);
  return result;
}

// Reads the devices of one root.
class Reader {
 public:
  Reader(const NetworkSelection& selection,
         const std::function<void(const std::string& name)>& on_device)
      : selection_(selection), root_(selection.sys_root), on_device_(on_device) {}

  absl::Status read_ports() {
    const Path all = root_ / "class/infiniband";
    const auto names = entries(all, [&](const std::string& name) {
      // Software RDMA has the attribute "parent".
      return has_hardware(all / name / "device") && !path_exists(all / name / "parent") &&
             is_selected(selection_, name);
    });
    if (!names.ok()) return names.status();
    for (const std::string& name : *names) {
      const bool is_efa = name_of_link(all / name / "device/driver") == "efa";
      const std::string type = attribute(all / name / "node_type");
      // iWARP uses TCP: its interface is watched.
      if (!is_efa && !type.empty() && !absl::StartsWith(type, "1:")) continue;
      const auto ports = entries(all / name / "ports", [](const std::string&) { return true; });
      if (!ports.ok()) return ports.status();
      for (const std::string& port : *ports) add_port(all / name, port, is_efa);
    }
    return absl::OkStatus();
  }

  absl::Status read_interfaces() {
    const Path all = root_ / "class/net";
    const auto names = entries(all, [&](const std::string& name) {
      return has_hardware(all / name / "device") && is_selected(selection_, name);
    });
    if (!names.ok()) return names.status();
    for (const std::string& name : *names) {
      // The representor of a virtual function is named like "pf0vf3".
      const bool is_representor = absl::StrContains(attribute(all / name / "phys_port_name"), "pf");
      const bool is_wireless =
          path_exists(all / name / "wireless") || path_exists(all / name / "phy80211");
      constexpr uint64_t kEthernetType = 1;  // ARPHRD_ETHER
      if (!is_representor && !is_wireless && number(all / name / "type") == kEthernetType)
        add_interface(all / name, name);
    }
    return absl::OkStatus();
  }

  std::vector<NetworkDevice> take() {
    if (devices_.size() > kNetworkDevicesMax) devices_.resize(kNetworkDevicesMax);
    return std::move(devices_);
  }

 private:
  NetworkDevice& add(const std::string& name) {
    NetworkDevice& device = devices_.emplace_back();
    device.name = printable(name, kNameBytesMax);
    if (on_device_) on_device_(device.name);
    return device;
  }

  void add_port(const Path& folder, const std::string& number_of_port, bool is_efa) {
    const Path port = folder / "ports" / number_of_port;
    NetworkDevice& device = add(absl::StrCat(folder.filename().string(), " port ", number_of_port));
    device.counters = port_counters(port);
    if (is_efa) {
      device.kind = NetworkKind::kEfa;  // its driver reports ACTIVE and LinkUp at all times
      return;
    }
    const bool is_infiniband = attribute(port / "link_layer") == "InfiniBand";
    device.kind = is_infiniband ? NetworkKind::kInfiniBand : NetworkKind::kRoce;
    const std::string state = after_colon(attribute(port / "state"));
    const std::string physical = after_colon(attribute(port / "phys_state"));
    device.state = absl::StrCat(state, physical.empty() ? "" : ", ", physical);
    device.is_needed = has_ports_ = true;
    if (absl::StartsWith(state, "ACTIVE")) {
      device.link = LinkState::kUp;
      device.gigabits_per_second = leading_number(attribute(port / "rate"));
    } else if (state == "INIT" || state == "ARMED") {
      device.link = LinkState::kInactive;
    } else if (state == "DOWN" && is_infiniband) {
      device.link = physical == "Disabled" ? LinkState::kDisabled : LinkState::kDown;
    } else if (state == "DOWN") {
      // Drivers of RoCE report Disabled for an unplugged cable, too.
      const std::optional<bool> is_on = is_switched_on(interface_of(folder, port));
      if (is_on) device.link = *is_on ? LinkState::kDown : LinkState::kDisabled;
    }
    if (!is_infiniband && has_substitute(interface_of(folder, port))) device.is_needed = false;
  }

  // Returns the folder of the interface of a RoCE port; one that does not exist if it is not known.
  Path interface_of(const Path& folder, const Path& port) const {
    std::string name = attribute(port / "gid_attrs/ndevs/0");
    if (name.empty()) {
      const auto names = entries(folder / "device/net", [](const std::string&) { return true; });
      if (names.ok() && names->size() == 1) name = names->front();
    }
    if (absl::StrContains(name, '/') || absl::StartsWith(name, ".")) name.clear();
    return root_ / "class/net" / (name.empty() ? "?" : name);
  }

  void add_interface(const Path& folder, const std::string& name) {
    constexpr std::string_view kErrors[] = {"statistics/rx_errors", "statistics/tx_errors"};
    constexpr std::string_view kDrops[] = {"statistics/rx_missed_errors", "statistics/tx_dropped"};
    NetworkDevice& device = add(name);
    device.state = attribute(folder / "operstate");
    const std::optional<bool> is_on = is_switched_on(folder);
    // Some drivers never report their state; then the carrier shows it.
    const std::string carrier =
        device.state == "unknown" ? attribute(folder / "carrier") : std::string();
    if (is_on && !*is_on) {
      device.link = LinkState::kDisabled;
    } else if (device.state == "up" || carrier == "1") {
      device.link = LinkState::kUp;
    } else if (is_on && (device.state == "down" || carrier == "0")) {
      device.link = LinkState::kDown;
    }
    device.is_needed = (!has_ports_ || is_named(selection_, name)) && !has_substitute(folder);
    constexpr double kMegabitsPerGigabit = 1000;
    if (const auto speed = number(folder / "speed");
        device.link == LinkState::kUp && speed && *speed > 0)
      device.gigabits_per_second = static_cast<double>(*speed) / kMegabitsPerGigabit;
    device.counters.sent_bytes = number(folder / "statistics/tx_bytes");
    device.counters.received_bytes = number(folder / "statistics/rx_bytes");
    device.counters.link_losses = number(folder / "carrier_down_count");
    device.counters.errors = sum(folder, kErrors);
    device.counters.drops = sum(folder, kDrops);
  }

  const NetworkSelection& selection_;
  const Path root_;
  const std::function<void(const std::string& name)>& on_device_;
  bool has_ports_ = false;  // there are ports of InfiniBand or RoCE, which ranks use
  std::vector<NetworkDevice> devices_;
};

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

absl::StatusOr<std::vector<NetworkDevice>> read_network_devices(
    const NetworkSelection& selection,
    const std::function<void(const std::string& name)>& on_device) {
  Reader reader(selection, on_device);
  if (absl::Status status = reader.read_ports(); !status.ok()) return status;
  if (absl::Status status = reader.read_interfaces(); !status.ok()) return status;
  return reader.take();
}

}  // namespace muster::worker
