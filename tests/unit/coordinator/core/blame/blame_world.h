// Sleeping ranks in a step, two on each node, for tests of blame.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include <absl/strings/str_cat.h>

#include "coordinator/core/blame/blame.h"

namespace muster::coordinator {

class World {
 public:
  explicit World(int32_t ranks) {
    for (int32_t rank = 0; rank < ranks; ++rank) {
      input.placement.push_back({.rank = Rank(rank),
                                 .worker = WorkerName(absl::StrCat("node", rank / 2 + 1)),
                                 .local_rank = rank % 2,
                                 .incarnation = Incarnation(1)});
      RankEvidence evidence;
      evidence.rank = rank;
      evidence.pid = 100 + rank;
      evidence.phase = Phase::kStep;
      evidence.step = 4;
      evidence.process_state = 'S';
      input.later.ranks.push_back(evidence);
    }
  }

  RankEvidence& rank(int32_t rank) { return input.later.ranks[static_cast<size_t>(rank)]; }
  // All ranks except those in `without` show the group.
  void all_show(const GroupEvidence& shown, std::initializer_list<int32_t> without = {}) {
    for (RankEvidence& evidence : input.later.ranks)
      if (std::find(without.begin(), without.end(), evidence.rank) == without.end())
        evidence.groups.push_back(shown);
  }
  Blame blame() {
    if (input.earlier.ranks.empty()) input.earlier.ranks = input.later.ranks;
    return coordinator::blame(input);
  }

  BlameInput input;
};

}  // namespace muster::coordinator
