// Stacks and evidence of ranks as text for people and as JSON for programs. Everything in them may come from a program that misbehaves: it is
// printable when it is a value (daemon/evidence_messages.h), and bounded here.
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
  int fd = -1;                         // whose colours; -1: none
  size_t columns_max = 80;             // longer lines end with "…"
  bool all_threads = false;            // not the main ones alone
  size_t classes_max = 1'000;          // the largest ones
  size_t frames_max = kStackDepthMax;  // of each, the innermost ones
  RankSet suspects;                    // marked
};

// Columns of the terminal at `fd`; as good as no bound where it is none, so that files have whole lines.
size_t columns_of(int fd);

// One paragraph for each stack that ranks have, with those ranks: the largest first, the innermost frame first.
std::string describe_stacks(const StackTree& stacks, const StackView& view);
// A line for each reason why ranks have no stacks, or not all of them, with the ranks; "" when nothing is missing.
std::string describe_stack_problems(const std::vector<RankEvidence>& ranks, const StackView& view);
// What the groups of ranks have enqueued, started and completed: those in which somebody waits, or all when nobody does.
std::string describe_groups(const std::vector<RankEvidence>& ranks);

nlohmann::json ranks_to_json(const RankSet& ranks);
nlohmann::json stacks_to_json(const StackTree& stacks);
nlohmann::json evidence_to_json(const RankEvidence& rank);

}  // namespace muster::cli
