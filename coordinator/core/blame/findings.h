// The findings of a blame: each end of the waiting, members of one group in different collectives,
// and ranks that stand out by themselves, with the points that they give to ranks (the table is in
// blame.h). Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "coordinator/core/blame/blame.h"
#include "coordinator/core/blame/blame_facts.h"
#include "coordinator/core/blame/wait_graph.h"
#include "coordinator/core/blame/witnesses.h"

namespace muster::coordinator {

// Nobody: what lies between ranks.
constexpr int32_t kNoRank = -1;

// A rank, or kNoRank, with the strongest thing that was found about it.
struct Candidate {
  double points = 0;
  HangShape shape = HangShape::kUnclear;
  size_t instance = 0;  // of the graph; instances().size(): no collective is involved
  std::string why;      // clause behind "it"
};

class Findings {
 public:
  // All outlive the findings.
  Findings(const BlameFacts& facts, const WaitGraph& graph);

  const std::map<int32_t, Candidate>& candidates() const { return candidates_; }

 private:
  using Instance = WaitGraph::Instance;

  void judge_end(const WaitGraph::End& end);
  void judge_behind(const std::vector<int32_t>& ranks);
  void judge_circle(const WaitGraph::End& end);
  void judge_all_entered(size_t instance);
  // True: they disagree, and those who do are candidates.
  bool judge_mismatch(size_t instance);
  void judge_halted();
  void judge_phases();
  void judge_steps();
  void judge_stacks();
  void add_runner_up();

  // The text of an instance for each of the ranks around it: made once, however many they are.
  struct Words {
    std::string what;  // "all-reduce 41 "layer 3 mlp" of fsdp"
    std::string wait;  // "ranks 0-4 wait (12.3 s)"
    std::string who;   // "ranks 0-4"
    std::string whom;  // "ranks 5-7": whom it waits for
    std::string age;   // " (12.3 s)"
    RankSet inside;
  };
  const Words& words_of(size_t instance);

  size_t no_instance() const { return graph_.instances().size(); }
  std::vector<int32_t> all_ranks() const;
  std::vector<int32_t> all_inside() const;  // some collective
  // Points, clauses and stacks of facts_ are added; the strongest finding of a rank stays. `among`:
  // whom its stack is compared with.
  void add(int32_t rank, Candidate candidate, const BlameFacts::Usual& among);
  std::string behind_text(int32_t rank, size_t instance, HangShape& shape, double& share);

  const BlameFacts& facts_;
  const WaitGraph& graph_;
  Witnesses witnesses_;
  std::map<size_t, Words> words_;
  std::map<int32_t, Candidate> candidates_;
};

}  // namespace muster::coordinator
