#include "coordinator/core/placement/placement.h"

#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <string_view>

#include "coordinator/core/placement/choice.h"
#include "coordinator/core/placement/network.h"

namespace muster::coordinator {
namespace {

// The nodes of a placement; null: not chosen yet.
using Seats = std::vector<const Host*>;

// The requested place of each node; null: any.
using PreferredPlaces = std::vector<const NodePlace*>;

// Returns the former host for each node of the job; null if this host is not available, or if it is
// to be avoided and enough other hosts are available.
Seats former_hosts(const PlacementRequest& request, int32_t nodes, const std::vector<Host>& hosts) {
  std::map<WorkerName, const Host*> there;
  for (const Host& host : hosts)
    if (request.has_room(host)) there.emplace(host.name, &host);
  const auto good = std::ranges::count_if(
      there, [&](const auto& entry) { return !request.avoid.contains(entry.first); });
  // The number of hosts to avoid that are needed nevertheless.
  int64_t avoided = std::max<int64_t>(nodes - good, 0);
  Seats seats(static_cast<size_t>(nodes), nullptr);
  for (size_t i = 0; i < std::min(seats.size(), request.previous.size()); ++i) {
    const auto host = there.find(request.previous[i]);
    if (host == there.end()) continue;
    if (request.avoid.contains(host->first) && avoided-- <= 0) continue;
    seats[i] = host->second;
  }
  return seats;
}

// Returns the places of the former nodes. A node without a known place, such as one that the job
// gains by growing, takes the place of the nearest node before or behind it, but only that of a
// node of the same segment if the job has segments.
PreferredPlaces preferred_places(const PlacementRequest& request, size_t nodes) {
  PreferredPlaces preferred(nodes, nullptr);
  if (request.places.empty()) return preferred;
  for (size_t i = 0; i < std::min(nodes, request.previous.size()); ++i) {
    const auto place = request.places.find(request.previous[i]);
    if (place != request.places.end()) preferred[i] = &place->second;
  }
  const auto segment = request.segment_nodes > 1 ? static_cast<size_t>(request.segment_nodes) : 0;
  const auto share = [segment](size_t a, size_t b) {
    return segment == 0 || a / segment == b / segment;
  };
  for (size_t i = 1; i < nodes; ++i)
    if (preferred[i] == nullptr && share(i - 1, i)) preferred[i] = preferred[i - 1];
  for (size_t i = nodes; i-- > 1;)
    if (preferred[i - 1] == nullptr && share(i - 1, i)) preferred[i - 1] = preferred[i];
  return preferred;
}

// Hosts by the name of their domain or switch, in the order in which they are used.
class HostsByPlace {
 public:
  template <class PlaceOf>
  HostsByPlace(std::span<const Host* const> hosts, const PlaceOf& place_of) {
    for (const Host* host : hosts)
      if (const std::string_view place = place_of(*host); !place.empty())
        hosts_[place].push_back(host);
    for (auto& [place, some] : hosts_) std::ranges::reverse(some);
  }

  // Returns the next host of the place that is not in `used`; null if there is none.
  const Host* take(std::string_view place, std::set<const Host*>& used) {
    const auto found = hosts_.find(place);
    if (found == hosts_.end()) return nullptr;
    for (std::vector<const Host*>& some = found->second; !some.empty();) {
      const Host* host = some.back();
      some.pop_back();
      if (used.insert(host).second) return host;
    }
    return nullptr;
  }

 private:
  std::map<std::string_view, std::vector<const Host*>> hosts_;
};

// Fills each open seat with a host of the requested domain, otherwise with a host below the same
// switch, from the leaf to the outermost one. Seats without such a host remain open.
void fill_near(Seats& seats, const PreferredPlaces& preferred, std::span<const Host* const> hosts,
               std::set<const Host*>& used) {
  const auto fill = [&](const auto& place_of_host, const auto& place_of_preferred) {
    HostsByPlace by_place(hosts, place_of_host);
    for (size_t i = 0; i < seats.size(); ++i) {
      if (seats[i] != nullptr || preferred[i] == nullptr) continue;
      if (const std::string_view place = place_of_preferred(*preferred[i]); !place.empty())
        seats[i] = by_place.take(place, used);
    }
  };
  size_t levels = 0;
  bool has_preference = false;
  for (size_t i = 0; i < seats.size(); ++i) {
    if (seats[i] != nullptr || preferred[i] == nullptr) continue;
    has_preference = true;
    levels = std::max(levels, levels_of(preferred[i]->switches));
  }
  if (!has_preference) return;
  const auto domain = [](const auto& place) { return std::string_view(place.domain); };
  fill(domain, domain);
  for (; levels > 0; --levels) {
    const auto above = [&](const auto& place) { return first_switches(place.switches, levels); };
    fill(above, above);
  }
}

void fill_open(Seats& seats, std::vector<const Host*> hosts) {
  std::ranges::sort(hosts);  // by address: the order of comes_before()
  auto next = hosts.begin();
  for (const Host*& seat : seats)
    if (seat == nullptr) seat = *next++;
}

// Requires that `choices` has a host for each open seat.
void fill(const PlacementRequest& request, HostChoices choices, Seats& seats) {
  const PreferredPlaces preferred = preferred_places(request, seats.size());
  std::set<const Host*> used;
  std::vector<const Host*> anywhere;
  const auto open = [&] { return static_cast<size_t>(std::ranges::count(seats, nullptr)); };
  const auto fill_anywhere = [&](HostClass which) {
    std::vector<const Host*>& hosts = hosts_in_class(choices, which);
    std::erase_if(hosts, [&](const Host* host) { return used.contains(host); });
    const size_t wanted = open() - anywhere.size();
    const size_t count = std::min(wanted, hosts.size());
    const bool is_whole = count == seats.size();  // segments begin at the seats' beginning
    for (const Host* host : nearest_together(hosts, count, is_whole ? request.segment_nodes : 1))
      anywhere.push_back(host);
  };
  std::vector<const Host*> good;
  for (const HostClass which : {HostClass::kFormer, HostClass::kReserved, HostClass::kUnreserved}) {
    const std::vector<const Host*>& hosts = hosts_in_class(choices, which);
    good.insert(good.end(), hosts.begin(), hosts.end());
  }
  fill_near(seats, preferred, good, used);
  for (const HostClass which : {HostClass::kFormer, HostClass::kReserved, HostClass::kUnreserved})
    fill_anywhere(which);
  if (anywhere.size() < open()) {
    for (const HostClass which : {HostClass::kOthers, HostClass::kSuspect, HostClass::kAvoided})
      fill_anywhere(which);
  }
  fill_open(seats, std::move(anywhere));
}

}  // namespace

HostChoices host_choices(const PlacementRequest& request, const std::set<WorkerName>& without,
                         const std::vector<Host>& hosts) {
  const std::set<WorkerName> previous(request.previous.begin(), request.previous.end());
  const std::set<WorkerName> own(request.held.begin(), request.held.end());
  const auto class_of = [&](const Host& host) {
    if (request.avoid.contains(host.name)) return HostClass::kAvoided;
    if (request.suspect.contains(host.name)) return HostClass::kSuspect;
    if (previous.contains(host.name)) return HostClass::kFormer;
    if (own.contains(host.name)) return HostClass::kReserved;
    return host.held ? HostClass::kOthers : HostClass::kUnreserved;
  };
  HostChoices choices;
  for (const Host& host : hosts)
    if (request.has_room(host) && !without.contains(host.name))
      hosts_in_class(choices, class_of(host)).push_back(&host);
  return choices;
}

Placement place(const PlacementRequest& request, int32_t nodes, const std::vector<Host>& hosts) {
  Placement placement;
  if (nodes_free(request, hosts) < nodes) {
    const auto large_enough = std::ranges::count_if(
        hosts, [&](const Host& host) { return request.would_have_room(host); });
    placement.fit = large_enough >= nodes ? Fit::kLater : Fit::kNever;
    return placement;
  }
  Seats seats = former_hosts(request, nodes, hosts);
  std::set<WorkerName> seated;
  for (const Host* seat : seats)
    if (seat != nullptr) seated.insert(seat->name);
  fill(request, host_choices(request, seated, hosts), seats);
  placement.fit = Fit::kNow;
  for (const Host* host : seats) {
    for (int32_t local = 0; local < request.ranks_per_node; ++local) {
      const Rank rank(static_cast<int32_t>(placement.ranks.size()));
      placement.ranks.push_back({rank, host->name, local, host->incarnation});
    }
  }
  return placement;
}

int32_t nodes_free(const PlacementRequest& request, const std::vector<Host>& hosts) {
  return static_cast<int32_t>(
      std::ranges::count_if(hosts, [&](const Host& host) { return request.has_room(host); }));
}

}  // namespace muster::coordinator
