#include "coordinator/core/placement/network.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <span>
#include <string>
#include <tuple>

#include "common/text/natural_order.h"

namespace muster::coordinator {
namespace {

using Hosts = std::span<const Host* const>;

// Compares names of switches in natural order, level by level, so that the hosts below one switch
// are adjacent. A prefix comes first.
bool switches_less(std::string_view a, std::string_view b) {
  const auto [at_a, at_b] = std::ranges::mismatch(a, b);
  const auto same = static_cast<size_t>(at_a - a.begin());
  const bool ends_a = same == a.size() || a[same] == '.';
  const bool ends_b = same == b.size() || b[same] == '.';
  if (ends_a && ends_b) return a.size() == same;
  const size_t dot = same == 0 ? std::string_view::npos : a.rfind('.', same - 1);
  const size_t begin = dot == std::string_view::npos ? 0 : dot + 1;
  return natural_less(a.substr(begin, a.find('.', begin) - begin),
                      b.substr(begin, b.find('.', begin) - begin));
}

// Returns the names that both have in front.
std::string_view shared_switches(std::string_view a, std::string_view b) {
  size_t levels = std::min(levels_of(a), levels_of(b));
  while (first_switches(a, levels) != first_switches(b, levels)) --levels;
  return first_switches(a, levels);
}

// A child of a node of the tree: a switch, or a domain.
using Branch = std::tuple<bool, std::string_view>;

// Returns the child at this level above the host. Hosts that have no further level are equal.
Branch branch_at(const Host& host, size_t level) {
  const size_t levels = levels_of(host.switches);
  if (level < levels) return {true, first_switches(host.switches, level + 1)};
  return {false, level == levels ? std::string_view(host.domain) : std::string_view()};
}

std::vector<Hosts> split(Hosts hosts, size_t level) {
  std::vector<Hosts> groups;
  for (size_t begin = 0, end = 0; begin < hosts.size(); begin = end) {
    const Branch branch = branch_at(*hosts[begin], level);
    while (end < hosts.size() && branch_at(*hosts[end], level) == branch) ++end;
    groups.push_back(hosts.subspan(begin, end - begin));
  }
  return groups;
}

// Appends `count` of the hosts below one node of the tree. Takes the smallest child that has
// enough of them, otherwise the largest children whole.
void take_near(Hosts hosts, size_t level, size_t count, std::vector<const Host*>& taken) {
  while (count > 0) {
    if (count >= hosts.size() || level > levels_of(hosts.front()->switches)) {
      taken.insert(taken.end(), hosts.begin(), hosts.begin() + static_cast<std::ptrdiff_t>(count));
      return;
    }
    std::vector<Hosts> groups = split(hosts, level++);
    std::ranges::stable_sort(groups, std::ranges::greater{}, &Hosts::size);
    auto next = groups.begin();
    while (next->size() < count) {
      taken.insert(taken.end(), next->begin(), next->end());
      count -= next->size();
      ++next;
    }
    // The first of the smallest groups that are large enough.
    const auto behind =
        std::find_if(next, groups.end(), [&](const Hosts& group) { return group.size() < count; });
    hosts = *std::ranges::find(next, behind, std::prev(behind)->size(), &Hosts::size);
  }
}

// Returns the hosts of each domain, or of each leaf switch without domains, without those that
// complete no segment.
std::vector<const Host*> whole_segments(Hosts hosts, size_t segment) {
  std::vector<const Host*> whole;
  for (size_t begin = 0, end = 0; begin < hosts.size(); begin = end) {
    const Host& first = *hosts[begin];
    while (end < hosts.size() && hosts[end]->domain == first.domain &&
           hosts[end]->switches == first.switches)
      ++end;
    const size_t used = (end - begin) / segment * segment;
    const Hosts some = hosts.subspan(begin, used);
    whole.insert(whole.end(), some.begin(), some.end());
  }
  return whole;
}

}  // namespace

bool comes_before(const Host& a, const Host& b) {
  if (a.switches != b.switches) return switches_less(a.switches, b.switches);
  if (a.domain != b.domain) return natural_less(a.domain, b.domain);
  return natural_less(a.name.value(), b.name.value());
}

void gather_domains(std::vector<Host*> hosts) {
  std::map<std::string_view, std::string_view> shared;
  for (const Host* host : hosts) {
    if (host->domain.empty() || host->switches.empty()) continue;
    const auto [entry, is_first] = shared.try_emplace(host->domain, host->switches);
    if (!is_first && entry->second != host->switches)
      entry->second = shared_switches(entry->second, host->switches);
  }
  std::vector<std::string> all;
  std::vector<Host*> changed;
  for (Host* host : hosts) {
    if (host->domain.empty()) continue;
    const auto entry = shared.find(host->domain);
    if (entry == shared.end() || entry->second.empty() || entry->second == host->switches) continue;
    all.emplace_back(entry->second);
    changed.push_back(host);
  }
  // The views refer to the switches of hosts, so these change last.
  for (size_t i = 0; i < changed.size(); ++i) changed[i]->switches = std::move(all[i]);
}

std::string_view first_switches(std::string_view switches, size_t levels) {
  if (levels == 0) return "";
  size_t end = 0;
  for (size_t level = 0; level < levels; ++level) {
    if (end > switches.size()) return "";
    if (switches.empty()) return "";
    const size_t dot = switches.find('.', end);
    end = dot == std::string_view::npos ? switches.size() + 1 : dot + 1;
  }
  return switches.substr(0, end - 1);
}

size_t levels_of(std::string_view switches) {
  return switches.empty() ? 0 : static_cast<size_t>(std::ranges::count(switches, '.')) + 1;
}

std::vector<const Host*> nearest_together(const std::vector<const Host*>& hosts, size_t count,
                                          int32_t segment) {
  std::vector<const Host*> pool;
  for (auto size = static_cast<size_t>(std::max(segment, 1)); pool.size() < count; --size) {
    if (size > 1 && (static_cast<size_t>(segment) % size != 0 || count % size != 0)) continue;
    pool = size > 1 ? whole_segments(hosts, size) : hosts;
    if (size == 1) break;
  }
  std::vector<const Host*> taken;
  take_near(pool, 0, count, taken);
  std::ranges::sort(taken);  // by address: the order of `hosts`
  return taken;
}

}  // namespace muster::coordinator
