// A TCP connection of a rank to another host that has stopped answering, as the kernel of the
// rank's node reports it. A bounded value, which workers send in heartbeats.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace muster {

struct StalledLink {
  std::string host;  // the other end's address: "10.0.0.2", "fd00::2"
  int32_t port = 0;  // the other end's port
  // Whether the connection is being opened. Otherwise it is open, and nothing that was sent is
  // acknowledged.
  bool is_connecting = false;
  // How often the kernel has repeated the oldest segment, or the attempt to connect. The intervals
  // grow, so an unchanged number shows nothing about the time since the last repetition.
  int32_t repetitions = 0;

  friend bool operator==(const StalledLink&, const StalledLink&) = default;
};

// The number of links of one rank that are reported, at most one per host: two show whether one
// other node or the rank's own node is cut off.
constexpr size_t kStalledLinksMax = 8;
// The number of addresses of a node that are reported: more than its network interfaces.
constexpr size_t kNodeAddressesMax = 32;
// The longest text of an address: IPv6 with a mapped IPv4 address.
constexpr size_t kHostAddressBytesMax = 45;

}  // namespace muster
