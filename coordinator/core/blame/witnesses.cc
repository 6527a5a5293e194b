#include "coordinator/core/blame/witnesses.h"

#include <algorithm>

namespace muster::coordinator {
namespace {

bool has_detail(const GroupEvidence& group) {
  return group.channel() == 0 && group.enqueued > 0 && !group.collective.empty();
}

// Returns the number of groups other than `own`.
size_t others(const std::set<uint32_t>& groups, uint32_t own) {
  return groups.size() - groups.count(own);
}

// Returns whether at least two other groups show one common value, and group `own` shows another
// value.
template <class T>
bool others_agree_against(const std::map<T, std::set<uint32_t>>& shown, const T& own,
                          uint32_t own_group) {
  const T* agreed = nullptr;
  size_t groups = 0;
  for (const auto& [what, ids] : shown) {
    const size_t count = others(ids, own_group);
    if (count == 0) continue;
    if (agreed != nullptr) return false;
    agreed = &what;
    groups = count;
  }
  return groups >= 2 && *agreed != own;
}

}  // namespace

Witnesses::Witnesses(const std::vector<RankView>& views, const WaitGraph& graph)
    : views_(views), graph_(graph) {
  for (const RankView& view : views_) {
    if (view.evidence == nullptr) continue;
    for (const GroupEvidence& group : view.evidence->groups) {
      if (!has_detail(group)) continue;
      const int64_t step = view.evidence->step;
      const Call call(group.kind, group.collective);
      numbers_[{group.name, step, call}][group.number()].insert(group.id);
      calls_[{group.name, step, group.number()}][call].insert(group.id);
      ++groups_[call][group.name];
    }
  }
}

Testimony Witnesses::on(int32_t rank, size_t instance) {
  const Testimony place = by_place(rank, instance);
  if (place == Testimony::kAgrees) return place;
  return std::max(by_number(rank), place == Testimony::kContradicts ? place : Testimony::kAgrees);
}

Witnesses::Place Witnesses::place_of(int32_t rank) const {
  Place place;
  for (const GroupEvidence& group : views_[static_cast<size_t>(rank)].evidence->groups)
    if (group.channel() == 0) place.emplace_back(group.name, group.started);
  std::sort(place.begin(), place.end());
  return place;
}

Testimony Witnesses::by_place(int32_t rank, size_t instance) {
  if (instance >= graph_.instances().size()) return Testimony::kNone;
  const auto [entry, is_new] = places_.try_emplace(instance);
  std::map<Place, int>& places = entry->second;
  if (is_new)
    for (const WaitGraph::Member& member : graph_.instances()[instance].inside)
      ++places[place_of(member.rank)];
  const auto own = places.find(place_of(rank));
  if (own != places.end() && own->second > 1) return Testimony::kAgrees;
  const bool others_agree =
      std::any_of(places.begin(), places.end(), [](const auto& place) { return place.second > 1; });
  return others_agree ? Testimony::kContradicts : Testimony::kNone;
}

Testimony Witnesses::by_number(int32_t rank) const {
  const RankEvidence* evidence = views_[static_cast<size_t>(rank)].evidence;
  if (evidence == nullptr) return Testimony::kNone;
  Testimony testimony = Testimony::kNone;
  for (const GroupEvidence& group : evidence->groups) {
    if (!has_detail(group)) continue;
    const Call call(group.kind, group.collective);
    const auto& numbers = numbers_.at({group.name, evidence->step, call});
    if (others(numbers.at(group.number()), group.id) > 0) {
      testimony = Testimony::kPartly;
      continue;
    }
    // Only this rank makes the call in this group, and several ranks make the call in exactly one
    // other group.
    const auto& groups = groups_.at(call);
    const bool is_elsewhere = groups.size() == 2 && groups.at(group.name) == 1 &&
                              (groups.begin()->second > 1 || groups.rbegin()->second > 1);
    if (is_elsewhere || others_agree_against(numbers, group.number(), group.id) ||
        others_agree_against(calls_.at({group.name, evidence->step, group.number()}), call,
                             group.id))
      return Testimony::kContradicts;
  }
  return testimony;
}

}  // namespace muster::coordinator
