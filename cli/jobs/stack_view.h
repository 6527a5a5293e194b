// Stacks and evidence of ranks as text for people. The values may come
// from a misbehaving program: daemon/evidence_messages.h makes them printable, and the functions
// here limit their size.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "common/job/rank_evidence.h"
#include "common/job/rank_set.h"
#include "common/stacks/stack_tree.h"

namespace muster::cli {

// Limits and colours of the output.
struct StackView {
  int fd = -1;               // the terminal that determines the colours; -1: no colours
  size_t columns_max = 80;   // longer lines end with "…"
  bool all_threads = false;  // true: all threads; false: main threads only
  // maximum number of distinct stacks; the most frequent ones are shown
  size_t classes_max = 1'000;
  // maximum number of frames per stack; the innermost frames and all Python frames are shown
  size_t frames_max = kStackDepthMax;
  RankSet suspects;  // ranks that are marked in the output
};

// Returns the number of columns of the terminal at `fd`. If `fd` is no terminal, returns a number
// that no line reaches, so that files get whole lines.
size_t columns_of(int fd);

// Returns a paragraph per distinct stack, with the ranks that have it: the most frequent stack
// first, the innermost frame first.
std::string describe_stacks(const StackTree& stacks, const StackView& view);
// Returns a line per reason for missing or incomplete stacks, with the affected ranks; "" if all
// stacks are complete.
std::string describe_stack_problems(const std::vector<RankEvidence>& ranks, const StackView& view);
// Returns the numbers of enqueued, started and completed collectives of process groups: of the
// groups in which a rank waits, or of all groups if no rank waits.
std::string describe_groups(const std::vector<RankEvidence>& ranks);

}  // namespace muster::cli
