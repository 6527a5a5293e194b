// Stacks and evidence of ranks as text for people and as JSON for programs. The values may come
// from a misbehaving program: daemon/evidence_messages.h makes them printable, and the functions
// here bound them.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/rank_evidence.h"
#include "common/rank_set.h"
#include "common/stack_tree.h"

namespace muster::cli {

struct StackView {
  int fd = -1;                         // the terminal whose colours are used; -1: none
  size_t columns_max = 80;             // longer lines end with "…"
  bool all_threads = false;            // false: main threads only
  size_t classes_max = 1'000;          // the largest classes
  size_t frames_max = kStackDepthMax;  // per class, the innermost frames
  RankSet suspects;                    // marked in the output
};

// Returns the columns of the terminal at `fd`. For anything else it returns a bound that no line
// reaches, so that files get whole lines.
size_t columns_of(int fd);

// Returns a paragraph per distinct stack with its ranks: the largest class first, the innermost
// frame first.
std::string describe_stacks(const StackTree& stacks, const StackView& view);
// Returns a line per reason for missing or incomplete stacks, with the ranks; "" when nothing is
// missing.
std::string describe_stack_problems(const std::vector<RankEvidence>& ranks, const StackView& view);
// Returns what the process groups have enqueued, started and completed: the groups in which a rank
// waits, or all if none waits.
std::string describe_groups(const std::vector<RankEvidence>& ranks);

nlohmann::json ranks_to_json(const RankSet& ranks);
nlohmann::json stacks_to_json(const StackTree& stacks);
nlohmann::json evidence_to_json(const RankEvidence& rank);

}  // namespace muster::cli
