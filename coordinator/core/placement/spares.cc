// Selects the workers to reserve for a job.
#include <algorithm>
#include <map>
#include <set>
#include <string_view>

#include "coordinator/core/placement/choice.h"
#include "coordinator/core/placement/network.h"
#include "coordinator/core/placement/placement.h"

namespace muster::coordinator {
namespace {

// The domains, or the switches of one level, of a job's nodes.
class Shares {
 public:
  // `level` 0: domains; otherwise the number of switches from the outermost one.
  Shares(const PlacementRequest& request, size_t level) : level_(level) {
    for (const auto& [name, place] : request.places)
      if (const std::string_view above = above_of(place); !above.empty()) ++shares_[above].nodes;
  }

  void add_candidate(const Host* host) {
    if (const auto share = shares_.find(above_of(*host)); share != shares_.end())
      share->second.hosts.push_back(host);
  }
  void count_spare(const Host& host) {
    if (const auto share = shares_.find(above_of(host)); share != shares_.end())
      ++share->second.spares;
  }
  // Returns a host of the domain or switch that has the most of the job's nodes for each spare,
  // with the new one; null if no candidate is left. Takes time proportional to the shares.
  const Host* next() {
    Share* best = nullptr;
    for (auto& [above, share] : shares_) {
      if (share.used == share.hosts.size()) continue;
      if (best == nullptr || share.nodes * (best->spares + 1) > best->nodes * (share.spares + 1))
        best = &share;
    }
    return best == nullptr ? nullptr : best->hosts[best->used++];
  }

 private:
  struct Share {
    int64_t nodes = 0, spares = 0;
    std::vector<const Host*> hosts{};
    size_t used = 0;
  };

  template <class Place>
  std::string_view above_of(const Place& place) const {
    return level_ == 0 ? std::string_view(place.domain) : first_switches(place.switches, level_);
  }

  size_t level_ = 0;
  std::map<std::string_view, Share> shares_;
};

// Moves hosts near the job's nodes from `hosts` to `chosen`, until that has `count`.
void choose_near(const PlacementRequest& request, size_t count, std::vector<const Host*>& hosts,
                 std::vector<const Host*>& chosen) {
  size_t deepest = 0;
  for (const auto& [name, place] : request.places)
    deepest = std::max(deepest, levels_of(place.switches));
  const auto choose = [&](size_t level) {
    Shares shares(request, level);
    for (const Host* host : chosen) shares.count_spare(*host);
    for (const Host* host : hosts) shares.add_candidate(host);
    std::set<const Host*> taken;
    while (chosen.size() < count) {
      const Host* host = shares.next();
      if (host == nullptr) break;
      shares.count_spare(*host);
      taken.insert(host);
      chosen.push_back(host);
    }
    std::erase_if(hosts, [&](const Host* host) { return taken.contains(host); });
  };
  choose(0);
  for (size_t level = deepest; level > 0 && chosen.size() < count; --level) choose(level);
}

}  // namespace

std::vector<WorkerName> choose_held(const PlacementRequest& request, int32_t count,
                                    const std::vector<Host>& hosts) {
  std::set<WorkerName> others = request.avoid;
  others.insert(request.previous.begin(), request.previous.end());
  HostChoices choices = host_choices(request, others, hosts);
  const auto wanted = static_cast<size_t>(std::max(count, 0));
  std::vector<const Host*> chosen;
  for (const HostClass which : {HostClass::kReserved, HostClass::kUnreserved, HostClass::kOthers}) {
    std::vector<const Host*>& some = hosts_in_class(choices, which);
    if (which != HostClass::kReserved && !request.places.empty() && chosen.size() < wanted)
      choose_near(request, wanted, some, chosen);
    const size_t more = std::min(some.size(), wanted - chosen.size());
    chosen.insert(chosen.end(), some.begin(), some.begin() + static_cast<std::ptrdiff_t>(more));
  }
  std::vector<WorkerName> names;
  for (const Host* host : chosen) names.push_back(host->name);
  return names;
}

}  // namespace muster::coordinator
