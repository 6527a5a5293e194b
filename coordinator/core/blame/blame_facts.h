// Evidence about single ranks, independent of the wait graph: process states, phases, stacks. Pure.
// Built once for each call of blame(); refers to its input.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "coordinator/core/blame/blame.h"
#include "coordinator/core/blame/python_wait.h"
#include "coordinator/core/blame/wait_graph.h"

namespace muster::coordinator {

class BlameFacts {
 public:
  explicit BlameFacts(const BlameInput& input);

  // Returns the views of all ranks, by rank, with the newest evidence.
  const std::vector<RankView>& views() const { return views_; }
  const RankView& view(int32_t rank) const { return views_[static_cast<size_t>(rank)]; }

  // Returns the rank's points from blame.h's table, except those for its stack.
  double points(int32_t rank) const;
  // Returns the facts about the rank as clauses whose subject is the rank: "is stopped (SIGSTOP)".
  std::vector<std::string> clauses(int32_t rank) const;
  // Returns the phase of most ranks.
  Phase usual_phase() const { return usual_phase_; }
  // Returns whether the rank's page shows another phase than the usual one; false without a page.
  bool is_in_other_phase(int32_t rank) const;
  // Returns whether the rank still runs although most ranks have exited with code 0.
  bool is_left_over(int32_t rank) const;
  // Returns whether the Python frames of the rank's main thread show that it waits for other ranks:
  // in a collective of PyTorch or JAX, or asleep in a backward pass.
  bool waits_in_python(int32_t rank) const;
  // Returns the exception at the end of the rank's output; "" if there is none. `own`: also for a
  // known consequence of another rank's fault.
  std::string error(int32_t rank, bool own) const;
  // Returns whether the rank's evidence changed between the two samples.
  bool makes_progress(int32_t rank) const;

  // Returns the stack class of the rank's main thread; null if its stack was not read.
  const StackTree::Class* stack(int32_t rank) const;
  // Returns the usual stack of the ranks in `among`, to measure how early other stacks depart from
  // it.
  class UsualStack;
  UsualStack usual_stack_of(const std::vector<int32_t>& among) const;

 private:
  const RankEvidence* earlier(int32_t rank) const { return earlier_[static_cast<size_t>(rank)]; }
  bool stays_in_kernel(int32_t rank) const;
  bool has_page(int32_t rank) const;

  const BlameInput& input_;
  std::vector<RankView> views_;
  std::vector<const RankEvidence*> earlier_;
  std::vector<StackTree::Class> classes_;
  std::vector<int32_t> class_of_;  // by rank; -1: none
  std::vector<PythonWait> waits_;  // by class
  Phase usual_phase_ = Phase::kStep;
  bool pages_are_usual_ = false;
  bool sleeping_is_usual_ = false;
  bool finishing_is_usual_ = false;  // most ranks have exited with code 0
};

// The stack at which most of the given ranks have their main threads.
class BlameFacts::UsualStack {
 public:
  // Returns how early the rank's stack departs from the usual one. 1: the two have no frame in
  // common. 0: the rank has the usual stack, there is no single usual stack, or the rank's stack is
  // not known.
  double departure(int32_t rank) const;

 private:
  friend class BlameFacts;
  const BlameFacts* facts_ = nullptr;
  std::vector<int64_t> counts_;  // by class
  int32_t most_ = -1;            // class; -1: no class is usual
  int64_t ranks_ = 0;
};

}  // namespace muster::coordinator
