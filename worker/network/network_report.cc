#include "worker/network/network_report.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/str_join.h>

#include "common/text/absl_view.h"

namespace muster::worker {
namespace {

// A counter, and the least increase between two measurements that is an event. Healthy links have
// single errors and retransmissions; each timeout stops a connection for a moment.
struct Watched {
  NetworkEventKind kind;
  std::optional<uint64_t> NetworkCounters::*counter;
  uint64_t least;
};
constexpr std::array<Watched, 4> kWatched = {{
    {NetworkEventKind::kErrors, &NetworkCounters::errors, 100},
    {NetworkEventKind::kDrops, &NetworkCounters::drops, 1'000},
    {NetworkEventKind::kRetransmissions, &NetworkCounters::retransmissions, 1'000},
    {NetworkEventKind::kTimeouts, &NetworkCounters::timeouts, 1},
}};

bool is_burst(NetworkEventKind kind) {
  return kind != NetworkEventKind::kUp && kind != NetworkEventKind::kRate;
}

void add(NetworkReport& report, NetworkEvent event) {
  if (is_burst(event.kind)) {
    const auto same = std::find_if(
        report.events.rbegin(), report.events.rend(),
        [&](const NetworkEvent& e) { return e.name == event.name && e.kind == event.kind; });
    // A link that came back in between was lost again, which is an event of its own.
    const bool continues = same != report.events.rend() &&
                           event.at - same->last <= kNetworkBurstPause &&
                           event.kind != NetworkEventKind::kLost;
    if (continues) {
      same->count += event.count;
      same->last = event.at;
      return;
    }
  }
  ++report.changes;
  if (report.events.size() == kNetworkEventsMax) report.events.erase(report.events.begin());
  event.last = event.at;
  report.events.push_back(std::move(event));
}

// Returns the increase; 0 if a driver that was loaded again counts from 0.
uint64_t increase(const std::optional<uint64_t>& before, const std::optional<uint64_t>& now) {
  return before && now && *now > *before ? *now - *before : 0;
}

std::string rate_text(double gigabits_per_second) {
  return absl::StrFormat("%g Gb/s", gigabits_per_second);
}

std::string down_problem(const NetworkDevice& device) {
  return absl::StrCat("network device ", device.name, " is down (", device.state,
                      "), and was up before");
}

void compare_links(NetworkReport& report, const NetworkState& before, const NetworkDevice& now,
                   Instant at) {
  const uint64_t losses = increase(before.device.counters.link_losses, now.counters.link_losses);
  if (before.device.is_up && !now.is_up && !now.is_switched_off) {
    add(report, {.at = at,
                 .name = now.name,
                 .kind = NetworkEventKind::kLost,
                 .count = std::max<uint64_t>(losses, 1),
                 .details = now.state});
  } else if (losses > 0 && before.device.is_up && now.is_up) {
    add(report, {.at = at,
                 .name = now.name,
                 .kind = NetworkEventKind::kLost,
                 .count = losses,
                 .details = "it is up again"});
  } else if (before.was_up && !before.device.is_up && now.is_up) {
    add(report, {.at = at, .name = now.name, .kind = NetworkEventKind::kUp});
  }
  const double old_rate = before.device.gigabits_per_second.value_or(0);
  const double new_rate = now.gigabits_per_second.value_or(0);
  if (old_rate > 0 && new_rate > 0 && old_rate != new_rate)
    add(report, {.at = at,
                 .name = now.name,
                 .kind = NetworkEventKind::kRate,
                 .details = absl::StrCat(rate_text(old_rate), " to ", rate_text(new_rate))});
}

void judge(NetworkState& state) {
  const NetworkDevice& device = state.device;
  const double rate = device.gigabits_per_second.value_or(0);
  state.was_up = (state.was_up || device.is_up) && !device.is_switched_off;
  state.best_gigabits_per_second = std::max(state.best_gigabits_per_second, rate);
  state.problem.clear();
  if (state.was_up && !device.is_up) {
    state.problem = down_problem(device);
  } else if (rate > 0 && rate < state.best_gigabits_per_second) {
    state.problem = absl::StrCat("network device ", device.name, " runs at ", rate_text(rate),
                                 " instead of ", rate_text(state.best_gigabits_per_second));
  }
}

std::string times(uint64_t count) { return count == 1 ? "" : absl::StrCat(" ", count, " times"); }

}  // namespace

void add_measurement(NetworkReport& report, std::vector<NetworkDevice> devices, Instant now) {
  std::map<std::string, NetworkDevice*> found;
  for (NetworkDevice& device : devices) found.emplace(device.name, &device);
  for (NetworkState& state : report.devices) {
    const auto next = found.extract(state.device.name);
    NetworkDevice device = state.device;
    if (!next) {
      device.is_up = false;
      device.state = "it has disappeared";
      device.gigabits_per_second.reset();
    } else {
      device = std::move(*next.mapped());
      for (const Watched& watched : kWatched) {
        const uint64_t more =
            increase(state.device.counters.*watched.counter, device.counters.*watched.counter);
        if (more >= watched.least)
          add(report, {.at = now, .name = device.name, .kind = watched.kind, .count = more});
      }
    }
    compare_links(report, state, device, now);
    state.device = std::move(device);
    judge(state);
  }
  for (NetworkDevice& device : devices) {
    if (!found.contains(device.name) || report.devices.size() == kNetworkDevicesMax) continue;
    judge(report.devices.emplace_back(NetworkState{.device = std::move(device), .problem = ""}));
  }
  report.measured = now;
}

std::string network_event_text(const NetworkEvent& event) {
  const std::string details = event.details.empty() ? "" : absl::StrCat(" (", event.details, ")");
  const std::string within =
      event.last > event.at ? absl::StrFormat(" within %.0f s", to_seconds(event.last - event.at))
                            : "";
  switch (event.kind) {
    case NetworkEventKind::kLost:
      return absl::StrCat(event.name, " lost its link", times(event.count), details);
    case NetworkEventKind::kUp:
      return absl::StrCat(event.name, " is up again");
    case NetworkEventKind::kRate:
      return absl::StrCat(event.name, " changed its rate from ", event.details);
    case NetworkEventKind::kErrors:
      return absl::StrCat(event.name, " had ", event.count, " errors", within);
    case NetworkEventKind::kDrops:
      return absl::StrCat(event.name, " dropped ", event.count, " packets", within);
    case NetworkEventKind::kRetransmissions:
      return absl::StrCat(event.name, " sent ", event.count, " packets again", within);
    case NetworkEventKind::kTimeouts:
      return absl::StrCat(event.name, " had ", event.count, " packet", event.count == 1 ? "" : "s",
                          " without an acknowledgement", within);
  }
  return event.name;
}

std::vector<std::string> network_messages_since(const NetworkReport& report, Instant since) {
  std::vector<std::string> messages;
  for (const NetworkEvent& event : report.events)
    if (event.last >= since)
      messages.push_back(absl::StrFormat("[%.6f] network: %s",
                                         to_seconds(event.at.time_since_epoch()),
                                         network_event_text(event)));
  return messages;
}

std::string lost_link_since(const NetworkReport& report, Instant since) {
  const auto lost =
      std::find_if(report.events.rbegin(), report.events.rend(), [&](const NetworkEvent& event) {
        return event.kind == NetworkEventKind::kLost && event.at >= since;
      });
  if (lost == report.events.rend()) return "";
  return absl::StrCat("the node's network device ", network_event_text(*lost));
}

std::string network_problems(const NetworkReport& report) {
  std::vector<std::string> problems;
  for (const NetworkState& state : report.devices)
    if (!state.problem.empty()) problems.push_back(state.problem);
  return absl::StrJoin(problems, "; ");
}

std::string describe_network(const NetworkReport& report) {
  if (report.devices.empty()) return "";
  std::map<NetworkKind, int> kinds;
  int up = 0;
  for (const NetworkState& state : report.devices) {
    ++kinds[state.device.kind];
    up += state.device.is_up ? 1 : 0;
  }
  const std::string parts =
      absl::StrJoin(kinds, ", ", [](std::string* out, const std::pair<const NetworkKind, int>& k) {
        absl::StrAppend(out, k.second, " ", av(network_kind_name(k.first)));
      });
  const size_t all = report.devices.size();
  return absl::StrCat(all, all == 1 ? " network device (" : " network devices (", parts, "), ", up,
                      " up");
}

}  // namespace muster::worker
