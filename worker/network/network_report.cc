#include "worker/network/network_report.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/str_join.h>

#include "common/job/rank_evidence.h"
#include "common/text/absl_view.h"

namespace muster::worker {
namespace {

// A counter, and the least increase within kNetworkCountInterval that is an event. Healthy links
// have single errors and retransmissions, and when a peer ends, connections of healthy nodes to it
// time out.
struct CounterRule {
  NetworkEventKind kind;
  std::optional<uint64_t> NetworkCounters::*counter;
  uint64_t least;
};
constexpr std::array<CounterRule, 4> kCounterRules = {{
    {NetworkEventKind::kErrors, &NetworkCounters::errors, 100},
    {NetworkEventKind::kDrops, &NetworkCounters::drops, 1'000},
    {NetworkEventKind::kRetransmissions, &NetworkCounters::retransmissions, 1'000},
    {NetworkEventKind::kTimeouts, &NetworkCounters::timeouts, 100},
}};

bool is_burst(NetworkEventKind kind) {
  return std::ranges::any_of(kCounterRules,
                             [&](const CounterRule& rule) { return rule.kind == kind; });
}

// Returns the increase; 0 if the counter was reset, or has reached its largest value.
uint64_t increase(const std::optional<uint64_t>& before, const std::optional<uint64_t>& now) {
  return before && now && *now > *before ? *now - *before : 0;
}

std::string rate_text(double gigabits_per_second) {
  return absl::StrFormat("%g Gb/s", gigabits_per_second);
}

std::string seconds_text(Duration time) {
  return absl::StrFormat("%.0f s", to_seconds(std::max(time, Duration::zero())));
}

// Adds one reading to a report.
class Comparison {
 public:
  Comparison(NetworkReport& report, Instant now) : report_(report), now_(now) {}

  void compare(NetworkState& state, NetworkDevice device) {
    compare_counters(state, device);
    compare_rates(state, device);
    const bool was_here = state.device.link == LinkState::kUp;
    const bool is_lost = state.lost_at && !state.back_at;
    state.device = std::move(device);
    switch (state.device.link) {
      case LinkState::kUnknown:
        break;
      case LinkState::kDisabled:
        state.was_up = false;
        state.lost_at.reset();
        state.back_at.reset();
        break;
      case LinkState::kInactive:
        if (was_here) add(state, NetworkEventKind::kInactive, 0, state.device.state);
        break;
      case LinkState::kDown:
        if (!state.was_up || is_lost) break;
        state.lost_at = now_;
        state.back_at.reset();
        add(state, NetworkEventKind::kLost, 1, state.device.state);
        break;
      case LinkState::kUp:
        if (is_lost) {
          state.back_at = now_;
          add(state, NetworkEventKind::kUp);
        }
        state.was_up = true;
        break;
    }
  }

  void begin(NetworkDevice device) {
    NetworkState& state = report_.devices.emplace_back();
    state.was_up = device.link == LinkState::kUp;
    state.best_gigabits_per_second = device.gigabits_per_second.value_or(0);
    state.counted = device.counters;
    state.counted_at = now_;
    state.device = std::move(device);
  }

  void add(const NetworkState& state, NetworkEventKind kind, uint64_t count = 0,
           std::string details = "") {
    const std::string& name = state.device.name;
    if (is_burst(kind)) {
      const auto same = std::find_if(
          report_.events.rbegin(), report_.events.rend(),
          [&](const NetworkEvent& event) { return event.name == name && event.kind == kind; });
      if (same != report_.events.rend() && now_ - same->last <= kNetworkBurstPause) {
        same->count += count;
        same->last = now_;
        return;
      }
    }
    const auto of_device = [&](const NetworkEvent& event) { return event.name == name; };
    if (std::ranges::count_if(report_.events, of_device) >=
        static_cast<ptrdiff_t>(kNetworkEventsOfDeviceMax))
      report_.events.erase(std::ranges::find_if(report_.events, of_device));
    news_.push_back({now_, now_, name, kind, count, std::move(details)});
    report_.events.push_back(news_.back());
  }

  std::vector<NetworkEvent> take() { return std::move(news_); }

 private:
  void compare_counters(NetworkState& state, const NetworkDevice& device) {
    if (now_ - state.counted_at < kNetworkCountInterval) return;
    for (const CounterRule& rule : kCounterRules) {
      const uint64_t more = increase(state.counted.*rule.counter, device.counters.*rule.counter);
      if (more >= rule.least) add(state, rule.kind, more);
    }
    const uint64_t losses = increase(state.counted.link_losses, device.counters.link_losses);
    const bool is_seen = state.lost_at && (!state.back_at || *state.back_at >= state.counted_at);
    if (losses > 0 && device.link == LinkState::kUp && !is_seen)
      add(state, NetworkEventKind::kFlapped, losses);
    state.counted = device.counters;
    state.counted_at = now_;
  }

  void compare_rates(NetworkState& state, const NetworkDevice& device) {
    const double before = state.device.gigabits_per_second.value_or(0);
    const double after = device.gigabits_per_second.value_or(0);
    if (before > 0 && after > 0 && before != after)
      add(state, NetworkEventKind::kRate, 0,
          absl::StrCat(rate_text(before), " to ", rate_text(after)));
    state.best_gigabits_per_second = std::max(state.best_gigabits_per_second, after);
  }

  NetworkReport& report_;
  const Instant now_;
  std::vector<NetworkEvent> news_;
};

std::string times(uint64_t count) { return count == 1 ? "" : absl::StrCat(" ", count, " times"); }

}  // namespace

std::vector<NetworkEvent> add_reading(NetworkReport& report, std::vector<NetworkDevice> devices,
                                      Instant now) {
  Comparison comparison(report, now);
  std::vector<NetworkState> before = std::exchange(report.devices, {});
  for (NetworkDevice& device : devices) {
    const auto known = std::ranges::find_if(
        before, [&](const NetworkState& state) { return state.device.name == device.name; });
    if (known == before.end()) {
      comparison.begin(std::move(device));
    } else {
      comparison.compare(*known, std::move(device));
      report.devices.push_back(std::move(*known));
      before.erase(known);
    }
  }
  for (const NetworkState& gone : before) comparison.add(gone, NetworkEventKind::kGone);
  // Events of devices that are gone stay for the incidents of the next minutes only.
  constexpr size_t kEventsMax = kNetworkDevicesMax * kNetworkEventsOfDeviceMax;
  if (report.events.size() > kEventsMax)
    report.events.erase(report.events.begin(), report.events.end() - kEventsMax);
  report.measured = now;
  return comparison.take();
}

std::string network_event_text(const NetworkEvent& event) {
  const std::string details = event.details.empty() ? "" : absl::StrCat(" (", event.details, ")");
  const std::string within =
      event.last > event.at ? absl::StrCat(" within ", seconds_text(event.last - event.at)) : "";
  switch (event.kind) {
    case NetworkEventKind::kLost:
      return absl::StrCat(event.name, " lost its link", details);
    case NetworkEventKind::kFlapped:
      return absl::StrCat(event.name, " lost its link", times(event.count),
                          " for a moment, by its counter");
    case NetworkEventKind::kInactive:
      return absl::StrCat(event.name, " is not active", details);
    case NetworkEventKind::kUp:
      return absl::StrCat(event.name, " is up again");
    case NetworkEventKind::kGone:
      return absl::StrCat(event.name, " is not there any more");
    case NetworkEventKind::kRate:
      return absl::StrCat(event.name, " changed its rate from ", event.details);
    case NetworkEventKind::kErrors:
      return absl::StrCat(event.name, " had ", event.count, " errors", within);
    case NetworkEventKind::kDrops:
      return absl::StrCat(event.name, " dropped ", event.count, " packets", within);
    case NetworkEventKind::kRetransmissions:
      return absl::StrCat(event.name, " had ", event.count, " retransmissions", within);
    case NetworkEventKind::kTimeouts:
      return absl::StrCat(event.name, " had ", event.count, " timeouts", within);
  }
  return event.name;
}

std::vector<std::string> network_messages_since(const NetworkReport& report, Instant since,
                                                Instant now) {
  std::vector<std::string> messages;
  if (const std::string silence = network_silence(report, now); !silence.empty())
    messages.push_back(
        absl::StrFormat("[%.6f] network: %s", to_seconds(now.time_since_epoch()), silence));
  for (auto event = report.events.rbegin();
       event != report.events.rend() && messages.size() < kNetworkMessagesMax; ++event)
    if (event->last >= since)
      messages.push_back(absl::StrFormat("[%.6f] network: %s",
                                         to_seconds(event->at.time_since_epoch()),
                                         network_event_text(*event)));
  std::ranges::reverse(messages);
  return messages;
}

void add_network_messages(const NetworkReport& report, Instant since, Instant now,
                          std::vector<std::string>& messages) {
  for (std::string& message : network_messages_since(report, since, now))
    messages.push_back(std::move(message));
  if (messages.size() > kKernelMessagesMax)
    messages.erase(messages.begin(),
                   messages.begin() + static_cast<ptrdiff_t>(messages.size() - kKernelMessagesMax));
}

std::optional<LostLink> lost_link(const NetworkReport& report, Instant started, Instant recent,
                                  Instant now) {
  if (now - report.measured > kNetworkSilence) return std::nullopt;
  const NetworkState* newest = nullptr;
  for (const NetworkState& state : report.devices) {
    if (!state.device.is_needed || !state.lost_at || *state.lost_at < started) continue;
    const bool is_down = state.device.link == LinkState::kDown;
    if (!is_down && (!state.back_at || *state.back_at < recent)) continue;
    const bool is_better = newest == nullptr ||
                           std::pair(is_down, *state.lost_at) >
                               std::pair(newest->device.link == LinkState::kDown, *newest->lost_at);
    if (is_better) newest = &state;
  }
  if (newest == nullptr) return std::nullopt;
  const std::string name = absl::StrCat("the node's network device ", newest->device.name);
  if (newest->device.link == LinkState::kDown)
    return LostLink{
        absl::StrCat(name, " has been without a link for ", seconds_text(now - *newest->lost_at),
                     " (", newest->device.state, ")"),
        true};
  return LostLink{
      absl::StrCat(name, " lost its link ", seconds_text(now - *newest->lost_at),
                   " before, and has been up again for ", seconds_text(now - *newest->back_at)),
      false};
}

std::string problem_of_device(const NetworkState& state, Instant now) {
  const NetworkDevice& device = state.device;
  if (!device.is_needed) return "";
  const std::string name = absl::StrCat("network device ", device.name);
  if (device.link == LinkState::kDown && state.was_up)
    return absl::StrCat(name, " is down (", device.state, "), and was up before");
  if (device.link != LinkState::kUp) return "";
  if (state.back_at && now - *state.back_at < kLinkSettled)
    return absl::StrCat(name, " lost its link, and has been up again only for ",
                        seconds_text(now - *state.back_at));
  const double rate = device.gigabits_per_second.value_or(0);
  // The rate of Ethernet is often changed on purpose.
  if (device.kind == NetworkKind::kInfiniBand && rate > 0 && rate < state.best_gigabits_per_second)
    return absl::StrCat(name, " runs at ", rate_text(rate), " instead of ",
                        rate_text(state.best_gigabits_per_second));
  return "";
}

std::string network_silence(const NetworkReport& report, Instant now) {
  if (!report.reading_since || now - *report.reading_since < kNetworkSilence) return "";
  return absl::StrCat("network devices could not be read for ",
                      seconds_text(now - *report.reading_since), report.reading.empty() ? "" : ": ",
                      report.reading, report.reading.empty() ? "" : " does not answer");
}

std::string network_problems(const NetworkReport& report, Instant now) {
  std::vector<std::string> problems;
  if (std::string silence = network_silence(report, now); !silence.empty())
    problems.push_back(std::move(silence));
  for (const NetworkState& state : report.devices)
    if (std::string problem = problem_of_device(state, now); !problem.empty())
      problems.push_back(std::move(problem));
  return absl::StrJoin(problems, "; ");
}

std::string describe_network(const NetworkReport& report) {
  if (report.devices.empty()) return "";
  std::map<NetworkKind, int> kinds;
  int down = 0;
  for (const NetworkState& state : report.devices) {
    ++kinds[state.device.kind];
    down += state.device.link == LinkState::kDown ? 1 : 0;
  }
  const std::string parts =
      absl::StrJoin(kinds, ", ", [](std::string* out, const std::pair<const NetworkKind, int>& k) {
        absl::StrAppend(out, k.second, " ", av(network_kind_name(k.first)));
      });
  const size_t all = report.devices.size();
  return absl::StrCat(all, all == 1 ? " network device (" : " network devices (", parts, ")",
                      down == 0 ? "" : absl::StrCat(", ", down, " without a link"));
}

}  // namespace muster::worker
