// Compares the calls of a rank with those of other ranks that run the same program. This shows
// which rank of a mismatch skipped a collective or entered an extra one. Two properties are
// compared, both on the computation's channel:
//
//   place   how many collectives of each group a rank has entered, compared with ranks inside the
//           same collective, which are at the same point of the program
//   number  the newest call of a group and its sequence number, compared with groups of the same
//           name, which count the same calls
//
// Pipeline stages run different programs, so a rank is compared only with ranks that could agree
// with it, and one agreeing rank is enough. A call without a name equals every other call of its
// kind, so it shows nothing. Pure; refers to its arguments.
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

// The support for one rank by other ranks, from the strongest to a contradiction.
enum class Testimony {
  kAgrees,       // another rank is at the same place and has made the same calls
  kPartly,       // no rank is at the same place, but others have the same numbers
  kNone,         // there is no rank to compare with
  kContradicts,  // other ranks agree with each other and not with this rank
};

class Witnesses {
 public:
  Witnesses(const std::vector<RankView>& views, const WaitGraph& graph);

  // Returns the testimony about `rank`. `instance`: the index of the instance that the rank is in,
  // or WaitGraph::instances().size() if the rank is in none.
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
  // The ranks inside an instance, counted by place; filled on demand.
  std::map<size_t, std::map<Place, int>> places_;
  // The ids of the groups that show a named call: in numbers_ by call and then by sequence number,
  // in calls_ by sequence number and then by call. A Call is the kind and the name.
  std::map<CallKey, std::map<uint64_t, std::set<uint32_t>>> numbers_;
  std::map<std::tuple<std::string_view, int64_t, uint64_t>, std::map<Call, std::set<uint32_t>>>
      calls_;
  // The number of ranks that show a call, by group name.
  std::map<Call, std::map<std::string_view, int64_t>> groups_;
};

}  // namespace muster::coordinator
