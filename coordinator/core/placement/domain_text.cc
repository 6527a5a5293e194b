#include "coordinator/core/placement/domain_text.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <string_view>

#include <absl/strings/str_cat.h>

#include "coordinator/core/records/list_text.h"

namespace muster::coordinator {
namespace {

std::string domain_of(const WorkerName& name, const Fleet& fleet) {
  const NodePlace* place = fleet.place_of(name);
  return place == nullptr ? "" : place->domain;
}

}  // namespace

std::string left_domains_text(const std::vector<WorkerName>& before,
                              const std::vector<WorkerName>& now, const Fleet& fleet) {
  std::vector<std::string> left;
  for (size_t i = 0; i < std::min(before.size(), now.size()); ++i) {
    if (before[i] == now[i]) continue;
    const std::string domain = domain_of(before[i], fleet);
    if (!domain.empty() && domain_of(now[i], fleet) != domain &&
        std::ranges::find(left, domain) == left.end())
      left.push_back(domain);
  }
  if (left.empty()) return "";
  return absl::StrCat("; outside ", left.size() == 1 ? "domain " : "the domains ", list_text(left));
}

std::string split_segments_text(const std::vector<WorkerName>& nodes, int32_t segment_nodes,
                                const Fleet& fleet) {
  const auto segment = static_cast<size_t>(segment_nodes);
  if (segment_nodes < 2 || nodes.size() < segment) return "";
  size_t split = 0, example = 0;
  for (size_t begin = 0; begin + segment <= nodes.size(); begin += segment) {
    const std::string domain = domain_of(nodes[begin], fleet);
    bool is_split = false;
    for (size_t i = begin + 1; i < begin + segment && !is_split; ++i)
      is_split = domain_of(nodes[i], fleet) != domain;
    if (is_split && split++ == 0) example = begin;
  }
  if (split == 0) return "";
  return absl::StrCat("; ", split, " of ", nodes.size() / segment, " groups of ", segment,
                      " nodes with much communication ", split == 1 ? "has" : "have",
                      " nodes of several domains, for example ", nodes[example].value(), " … ",
                      nodes[example + segment - 1].value());
}

std::string lacking_domains_text(const PlacementRequest& request, const std::vector<Host>& hosts) {
  if (request.places.empty()) return "";
  std::map<std::string_view, std::ptrdiff_t> lacking;
  std::set<WorkerName> missing(request.previous.begin(), request.previous.end());
  for (const Host& host : hosts)
    if (request.has_room(host)) missing.erase(host.name);
  for (const WorkerName& name : missing) {
    const auto place = request.places.find(name);
    if (place != request.places.end() && !place->second.domain.empty())
      ++lacking[place->second.domain];
  }
  if (lacking.empty()) return "";
  const std::set<WorkerName> former(request.previous.begin(), request.previous.end());
  for (const Host& host : hosts) {
    const auto domain = lacking.find(host.domain);
    if (domain != lacking.end() && request.has_room(host) && !former.contains(host.name))
      --domain->second;
  }
  std::vector<std::string> names;
  for (const auto& [domain, count] : lacking)
    if (count > 0) names.emplace_back(domain);
  if (names.empty()) return "";
  return names.size() == 1 ? absl::StrCat("; domain ", names.front(), " lacks nodes")
                           : absl::StrCat("; the domains ", list_text(names), " lack nodes");
}

}  // namespace muster::coordinator
