#include "coordinator/core/witnesses.h"

#include <algorithm>

namespace muster::coordinator {
namespace {

bool is_computation(const GroupEvidence& group) {
  return group.name.find('#') == std::string::npos;
}

// Of the groups that a map has, those that are not `own`.
size_t others(const std::map<uint32_t, int>& groups, uint32_t own) {
  return groups.size() - groups.count(own);
}

}  // namespace

Witnesses::Witnesses(const std::vector<RankView>& views, const WaitGraph& graph)
    : views_(views), graph_(graph) {
  for (const RankView& view : views_) {
    if (view.evidence == nullptr) continue;
    for (const GroupEvidence& group : view.evidence->groups) {
      if (!is_computation(group) || group.enqueued == 0) continue;
      const int64_t step = view.evidence->step;
      ++numbers_[{group.name, step, group.kind, group.collective}][group.enqueued][group.id];
      ++calls_[{group.name, step, group.enqueued}][group.id];
    }
  }
}

Testimony Witnesses::on(int32_t rank, size_t instance) const {
  const Testimony place = by_place(rank, instance);
  if (place == Testimony::kAgrees) return place;
  const Testimony number = by_number(rank);
  if (place == Testimony::kContradicts || number == Testimony::kContradicts)
    return Testimony::kContradicts;
  return number;
}

Witnesses::Place Witnesses::place_of(int32_t rank) const {
  Place place;
  for (const GroupEvidence& group : views_[static_cast<size_t>(rank)].evidence->groups)
    if (is_computation(group)) place.emplace_back(group.name, group.started);
  std::sort(place.begin(), place.end());
  return place;
}

Testimony Witnesses::by_place(int32_t rank, size_t instance) const {
  if (instance >= graph_.instances().size()) return Testimony::kNone;
  const Place own = place_of(rank);
  std::map<Place, int> places;
  for (const WaitGraph::Member& member : graph_.instances()[instance].inside)
    if (member.rank != rank) ++places[place_of(member.rank)];
  if (places.contains(own)) return Testimony::kAgrees;
  const bool others_agree =
      std::any_of(places.begin(), places.end(), [](const auto& entry) { return entry.second > 1; });
  return others_agree ? Testimony::kContradicts : Testimony::kNone;
}

Testimony Witnesses::by_number(int32_t rank) const {
  const RankEvidence* evidence = views_[static_cast<size_t>(rank)].evidence;
  if (evidence == nullptr) return Testimony::kNone;
  Testimony testimony = Testimony::kNone;
  for (const GroupEvidence& group : evidence->groups) {
    if (!is_computation(group) || group.enqueued == 0) continue;
    const auto call = numbers_.find({group.name, evidence->step, group.kind, group.collective});
    const auto same = call->second.find(group.enqueued);
    if (others(same->second, group.id) > 0) {
      testimony = Testimony::kAgrees;
      continue;
    }
    const auto number = calls_.find({group.name, evidence->step, group.enqueued});
    const bool other_number =
        std::any_of(call->second.begin(), call->second.end(), [&](const auto& entry) {
          return entry.first != group.enqueued && others(entry.second, group.id) > 0;
        });
    if (other_number || others(number->second, group.id) > 0) return Testimony::kContradicts;
  }
  return testimony;
}

}  // namespace muster::coordinator
