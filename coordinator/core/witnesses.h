// What ranks that run the same program say about a rank whose calls do not fit together with others': who left a collective out, or entered one
// too many, is ahead or behind of those who do the same. Two things are compared, both of the lane that is the computation's own:
//
//   place   how many collectives of each group a rank has entered, among ranks inside the same collective: they are at one point of the program
//   number  the newest call of a group and its number, among groups of one name: they count the same calls
//
// Stages of a pipeline do not run the same program; a rank is only judged against those it could agree with, and one that agrees is enough.
// Pure; refers to what it was made of.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "coordinator/core/wait_graph.h"

namespace muster::coordinator {

enum class Testimony {
  kAgrees,       // somebody is where it is, having done the same
  kNone,         // there is nobody to compare it with
  kContradicts,  // others agree with each other, and not with it
};

class Witnesses {
 public:
  Witnesses(const std::vector<RankView>& views, const WaitGraph& graph);

  // `instance`: of the graph, that the rank is in; instances().size(): none.
  Testimony on(int32_t rank, size_t instance) const;

 private:
  // Collectives entered in each group of the computation's lane.
  using Place = std::vector<std::pair<std::string_view, uint64_t>>;
  using CallKey = std::tuple<std::string_view, int64_t, CollectiveKind,
                             std::string_view>;  // group's name, step, kind, name

  Testimony by_place(int32_t rank, size_t instance) const;
  Testimony by_number(int32_t rank) const;
  Place place_of(int32_t rank) const;

  const std::vector<RankView>& views_;
  const WaitGraph& graph_;
  // Which groups (by id) show a call under which numbers, and which calls a number is.
  std::map<CallKey, std::map<uint64_t, std::map<uint32_t, int>>> numbers_;
  std::map<std::tuple<std::string_view, int64_t, uint64_t>, std::map<uint32_t, int>> calls_;
};

}  // namespace muster::coordinator
