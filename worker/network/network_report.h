// The events of the node's network devices since the worker started. Links that were lost
// and bursts of errors explain why ranks of several nodes hang or end, which the ranks themselves
// report only as a lost peer. This file has values and pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/time/time.h"
#include "worker/network/network_device.h"

namespace muster::worker {

// Maximum number of retained events of a device; its oldest are dropped. A port that comes and goes
// must not displace the events of others.
constexpr size_t kNetworkEventsOfDeviceMax = 16;
// Maximum number of events among the messages of an incident.
constexpr size_t kNetworkMessagesMax = 20;
// A burst that continues is one event; after so long without a new error, the next error begins
// another one.
constexpr Duration kNetworkBurstPause = std::chrono::seconds(30);
// The least time between two counts that are compared: bursts are packets within such a time.
constexpr Duration kNetworkCountInterval = std::chrono::seconds(4);
// A link that was lost must be up for this time before the node is healthy: a bad cable or
// transceiver loses it again.
constexpr Duration kLinkSettled = std::chrono::seconds(30);
// Readings take milliseconds; a command to a dead device ends after a minute, or never.
constexpr Duration kNetworkSilence = std::chrono::seconds(10);

// A device, and what has become of its link since the worker started.
struct NetworkState {
  NetworkDevice device;
  double best_gigabits_per_second = 0;  // 0: no rate was known
  // The link was up, and no administrator has switched it off since.
  bool was_up = false;
  std::optional<Instant> lost_at{};  // the reading that showed the newest loss; nullopt: none
  std::optional<Instant> back_at{};  // the reading that showed the link after it; nullopt: none
  NetworkCounters counted{};         // the counters that the next ones are compared with
  Instant counted_at{};
};

enum class NetworkEventKind {
  kLost,      // the link was up, and is down
  kFlapped,   // the link was lost between two readings that show it up
  kInactive,  // the port is not active, though it has a link
  kUp,
  kGone,             // the device is not listed any more
  kRate,             // the rate of the link has changed
  kErrors,           // damaged packets
  kDrops,            // dropped packets
  kRetransmissions,  // retransmissions of RDMA
  kTimeouts,         // packets without an acknowledgement
};

struct NetworkEvent {
  Instant at{};      // time of the reading that showed it
  Instant last{};    // time of the newest reading that is part of it
  std::string name;  // the device's name
  NetworkEventKind kind = NetworkEventKind::kLost;
  uint64_t count = 0;     // number of losses or packets; 0 for the others
  std::string details{};  // state or rates of the link; may be empty
};

struct NetworkReport {
  std::vector<NetworkState> devices;  // those of the newest complete reading
  std::vector<NetworkEvent> events;   // oldest first
  Instant measured{};                 // time of the newest complete reading; 0: there was none
  // The beginning of a reading that has not ended, and the device that it waits for.
  std::optional<Instant> reading_since{};
  std::string reading;
};

// Adds a complete reading, and returns its new events. A device that is not in it any more is
// forgotten: virtual machines, containers and operators remove devices on purpose.
std::vector<NetworkEvent> add_reading(NetworkReport& report, std::vector<NetworkDevice> devices,
                                      Instant now);

// Returns "mlx5_0 port 1 lost its link (DOWN, Polling)", "mlx5_0 port 1 had 1200 retransmissions
// within 35 s".
std::string network_event_text(const NetworkEvent& event);

// Returns the newest events that lasted until `since` or later, oldest first, and a reading that
// does not end, formatted like kernel messages: "[43579.126000] network: mlx5_0 port 1 lost its
// link (DOWN, Polling)".
std::vector<std::string> network_messages_since(const NetworkReport& report, Instant since,
                                                Instant now);
// Adds network_messages_since() to kernel messages. If they are too many, the kernel's oldest ones
// are dropped.
void add_network_messages(const NetworkReport& report, Instant since, Instant now,
                          std::vector<std::string>& messages);

// The loss of a link that may explain why a rank has lost its peers.
struct LostLink {
  // A clause: "the node's network device mlx5_0 port 1 has been without a link for 12 s (DOWN,
  // Polling)"
  std::string clause;
  bool is_down = false;  // the link is still down
};
// Returns the loss of a needed link since the rank's start: of one that is still down, or that was
// down after `recent`; nullopt: there is none, or the newest reading is old.
std::optional<LostLink> lost_link(const NetworkReport& report, Instant started, Instant recent,
                                  Instant now);

// Returns, as a clause, why ranks should not use the device: a needed link is down that was up, or
// is back only for a moment, or is slower than before (InfiniBand); empty: there is no reason.
std::string problem_of_device(const NetworkState& state, Instant now);

// Returns the problem of a reading that does not end, as a clause; empty: readings end.
std::string network_silence(const NetworkReport& report, Instant now);

// Returns the problems of all devices, and a reading that does not end, as a sentence; empty: there
// are none.
std::string network_problems(const NetworkReport& report, Instant now);

// Returns "9 network devices (8 infiniband, 1 ethernet), 1 without a link"; empty: the node has
// none.
std::string describe_network(const NetworkReport& report);

}  // namespace muster::worker
