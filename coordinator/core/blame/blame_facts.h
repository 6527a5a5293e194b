// Evidence against single ranks, whichever ranks wait for them: process states, phases, stacks.
// Pure; made once for a blame, refers to its input.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "coordinator/core/blame/blame.h"
#include "coordinator/core/blame/wait_graph.h"

namespace muster::coordinator {

class BlameFacts {
 public:
  explicit BlameFacts(const BlameInput& input);

  // By rank. Evidence is the newest there is.
  const std::vector<RankView>& views() const { return views_; }
  const RankView& view(int32_t rank) const { return views_[static_cast<size_t>(rank)]; }

  // Points of blame.h's table but the stack's.
  double points(int32_t rank) const;
  // The facts as clauses behind "it": "is stopped (SIGSTOP)".
  std::vector<std::string> clauses(int32_t rank) const;
  // The phase that most ranks are in.
  Phase usual_phase() const { return usual_phase_; }
  // By its page; false where it has none.
  bool is_in_other_phase(int32_t rank) const;
  // Its evidence changed from the first sample to the second.
  bool goes_on(int32_t rank) const;

  // The rank's main thread; null: not read.
  const StackTree::Class* stack(int32_t rank) const;
  // By how early the rank's stack leaves that of most of `among`, 0 to 1; 0 where it is usual to be
  // where it is.
  class Usual;
  Usual usual_of(const std::vector<int32_t>& among) const;

 private:
  const RankEvidence* earlier(int32_t rank) const { return earlier_[static_cast<size_t>(rank)]; }
  bool stays_in_kernel(int32_t rank) const;
  bool has_page(int32_t rank) const;

  const BlameInput& input_;
  std::vector<RankView> views_;
  std::vector<const RankEvidence*> earlier_;
  std::vector<StackTree::Class> classes_;
  std::vector<int32_t> class_of_;  // by rank; -1: none
  Phase usual_phase_ = Phase::kStep;
  bool pages_are_usual_ = false;
  bool sleeping_is_usual_ = false;
};

// The place of the main threads of most of some ranks.
class BlameFacts::Usual {
 public:
  // 1: its stack has nothing in common with the usual one; 0: it is the usual one, is one of
  // several, or is not known.
  double departure(int32_t rank) const;

 private:
  friend class BlameFacts;
  const BlameFacts* facts_ = nullptr;
  std::vector<int64_t> counts_;  // by class
  int32_t most_ = -1;            // class; -1: none is usual
  int64_t ranks_ = 0;
};

}  // namespace muster::coordinator
