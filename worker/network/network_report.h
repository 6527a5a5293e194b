// The events of the node's network devices since the worker started. Links that were lost
// and bursts of errors explain why ranks of several nodes hang or end, which the ranks themselves
// report only as a lost peer. This file has values and pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/time/time.h"
#include "worker/network/network_device.h"

namespace muster::worker {

// Maximum number of retained events; the oldest are dropped.
constexpr size_t kNetworkEventsMax = 256;
// A burst that continues is one event; after so long without a new error, the next error begins
// another one.
constexpr Duration kNetworkBurstPause = std::chrono::seconds(30);

// A device, and the reason why ranks should not use it.
struct NetworkState {
  NetworkDevice device;
  double best_gigabits_per_second = 0;  // 0: no rate was known
  bool was_up = false;
  // A clause: "mlx5_0 port 1 is down (DOWN, Polling), and was up before"; empty: healthy, or never
  // used.
  std::string problem;
};

enum class NetworkEventKind {
  kLost,  // the link was lost; it may be up again
  kUp,
  kRate,             // the rate of the link has changed
  kErrors,           // damaged packets
  kDrops,            // dropped packets
  kRetransmissions,  // packets that were sent again
  kTimeouts,         // packets without an acknowledgement
};

struct NetworkEvent {
  Instant at{};      // time of the measurement that showed it
  Instant last{};    // time of the newest measurement that is part of it
  std::string name;  // the device's name
  NetworkEventKind kind = NetworkEventKind::kLost;
  uint64_t count = 0;     // number of losses or packets; 0 for kUp and kRate
  std::string details{};  // state or rates of the link; may be empty
};

struct NetworkReport {
  std::vector<NetworkState> devices;
  std::vector<NetworkEvent> events;  // oldest first, at most kNetworkEventsMax
  Instant measured{};                // time of the newest measurement
  uint64_t changes = 0;              // incremented by each event
};

// Adds a measurement. Devices that have disappeared stay, with a problem. A device that an
// administrator has switched off has no problem.
void add_measurement(NetworkReport& report, std::vector<NetworkDevice> devices, Instant now);

// Returns "mlx5_0 port 1 lost its link (DOWN, Polling)", "mlx5_0 port 1 sent 1200 packets again
// within 35 s".
std::string network_event_text(const NetworkEvent& event);

// Returns the events that lasted until `since` or later, formatted like kernel messages:
// "[43579.126000] network: mlx5_0 port 1 lost its link (DOWN, Polling)".
std::vector<std::string> network_messages_since(const NetworkReport& report, Instant since);

// Returns, as a clause, the newest loss of a link since `since`: "the node's network device mlx5_0
// port 1 lost its link (DOWN, Polling)". Empty: no link was lost.
std::string lost_link_since(const NetworkReport& report, Instant since);

// Returns the problems of all devices as a sentence; empty: there are none.
std::string network_problems(const NetworkReport& report);

// Returns "9 network devices (8 infiniband, 1 ethernet), 9 up"; empty: the node has none.
std::string describe_network(const NetworkReport& report);

}  // namespace muster::worker
