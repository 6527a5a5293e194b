// The evidence of ranks that run the same program about a rank whose calls do not match others':
// which rank left a collective out, or entered one too many, is ahead or behind of those who do the
// same. Two things are compared, both of the channel that is the computation's own:
//
//   place   how many collectives of each group a rank has entered, among ranks inside the same
//           collective: they are at one point of the program
//   number  the newest call of a group, its number and the group's name, among groups of one name:
//           they count the same calls
//
// Stages of a pipeline do not run the same program; a rank is only judged against those it could
// agree with, and one that agrees is enough. A call without a name is like all others of its kind,
// and shows nothing. Pure; refers to what it was made of.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "coordinator/core/blame/wait_graph.h"

namespace muster::coordinator {

// From the best to the worst.
enum class Testimony {
  kAgrees,       // somebody is where it is, having done the same
  kPartly,       // nobody is where it is; its numbers are others', too
  kNone,         // there is nobody to compare it with
  kContradicts,  // others agree with each other, and not with it
};

class Witnesses {
 public:
  Witnesses(const std::vector<RankView>& views, const WaitGraph& graph);

  // `instance`: of the graph, that the rank is in; instances().size(): none.
  Testimony on(int32_t rank, size_t instance);

 private:
  // Collectives entered in each group of the computation's channel.
  using Place = std::vector<std::pair<std::string_view, uint64_t>>;
  using Call = std::pair<CollectiveKind, std::string_view>;
  using CallKey = std::tuple<std::string_view, int64_t, Call>;  // group's name, step, call

  Testimony by_place(int32_t rank, size_t instance);
  Testimony by_number(int32_t rank) const;
  Place place_of(int32_t rank) const;

  const std::vector<RankView>& views_;
  const WaitGraph& graph_;
  std::map<size_t, std::map<Place, int>>
      places_;  // ranks inside an instance by their places; as they are asked for
  // The ids, for calls that have names, of the groups that show them; the same by number. The key's
  // kind and name say what the call is.
  std::map<CallKey, std::map<uint64_t, std::set<uint32_t>>> numbers_;
  std::map<std::tuple<std::string_view, int64_t, uint64_t>, std::map<Call, std::set<uint32_t>>>
      calls_;
  std::map<Call, std::map<std::string_view, int64_t>>
      groups_;  // ranks that show a call, by the group's name
};

}  // namespace muster::coordinator
