#include "coordinator/core/placement/placement.h"

#include <algorithm>
#include <map>
#include <set>

#include "common/text/natural_order.h"

namespace muster::coordinator {
namespace {

// Returns the hosts with room, in the order in which they are chosen; `without` is excluded.
std::vector<const Host*> in_order_of_choice(const PlacementRequest& request,
                                            const std::set<WorkerName>& without,
                                            const std::vector<Host>& hosts) {
  const std::set<WorkerName> previous(request.previous.begin(), request.previous.end());
  const std::set<WorkerName> own(request.held.begin(), request.held.end());
  const auto choice = [&](const Host* host) {
    if (request.avoid.contains(host->name)) return 4;
    if (previous.contains(host->name)) return 0;
    if (own.contains(host->name)) return 1;
    return host->held ? 3 : 2;
  };
  std::vector<const Host*> choices;
  for (const Host& host : hosts) {
    if (request.has_room(host) && !without.contains(host.name)) choices.push_back(&host);
  }
  std::ranges::stable_sort(choices, {}, choice);
  return choices;
}

// Returns the former host for each node of the job; null if this host is not available, or if it is
// to be avoided and enough other hosts are available.
std::vector<const Host*> former_hosts(const PlacementRequest& request, int32_t nodes,
                                      const std::vector<Host>& hosts) {
  std::map<WorkerName, const Host*> there;
  for (const Host& host : hosts)
    if (request.has_room(host)) there.emplace(host.name, &host);
  const auto good = std::ranges::count_if(
      there, [&](const auto& entry) { return !request.avoid.contains(entry.first); });
  // The number of hosts to avoid that are needed nevertheless.
  int64_t avoided = std::max<int64_t>(nodes - good, 0);
  std::vector<const Host*> seats(static_cast<size_t>(nodes), nullptr);
  for (size_t i = 0; i < std::min(seats.size(), request.previous.size()); ++i) {
    const auto host = there.find(request.previous[i]);
    if (host == there.end()) continue;
    if (request.avoid.contains(host->first) && avoided-- <= 0) continue;
    seats[i] = host->second;
  }
  return seats;
}

void fill(std::vector<const Host*>& seats, std::vector<const Host*> choices) {
  const auto open = static_cast<size_t>(std::ranges::count(seats, nullptr));
  choices.resize(open);
  std::ranges::sort(choices);  // by address: the order of `hosts`
  auto next = choices.begin();
  for (const Host*& seat : seats)
    if (seat == nullptr) seat = *next++;
}

}  // namespace

bool comes_before(const Host& a, const Host& b) {
  if (a.switches != b.switches) return natural_less(a.switches, b.switches);
  return natural_less(a.name.value(), b.name.value());
}

Placement place(const PlacementRequest& request, int32_t nodes, const std::vector<Host>& hosts) {
  Placement placement;
  if (nodes_free(request, hosts) < nodes) {
    const auto large_enough = std::ranges::count_if(
        hosts, [&](const Host& host) { return request.would_have_room(host); });
    placement.fit = large_enough >= nodes ? Fit::kLater : Fit::kNever;
    return placement;
  }
  std::vector<const Host*> seats = former_hosts(request, nodes, hosts);
  std::set<WorkerName> seated;
  for (const Host* seat : seats)
    if (seat != nullptr) seated.insert(seat->name);
  fill(seats, in_order_of_choice(request, seated, hosts));
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

std::vector<WorkerName> choose_held(const PlacementRequest& request, int32_t count,
                                    const std::vector<Host>& hosts) {
  std::set<WorkerName> others = request.avoid;
  others.insert(request.previous.begin(), request.previous.end());
  std::vector<WorkerName> chosen;
  for (const Host* host : in_order_of_choice(request, others, hosts)) {
    if (std::ssize(chosen) >= count) break;
    chosen.push_back(host->name);
  }
  return chosen;
}

}  // namespace muster::coordinator
