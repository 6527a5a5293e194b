// The findings of a blame: ends of wait chains, group members in different collectives, and ranks
// that stand out by themselves. Each finding gives points to ranks (table in blame.h). Pure.
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

// Stands for the transport between ranks where a rank number is expected.
constexpr int32_t kNoRank = -1;

// The strongest finding about one rank, or about the transport.
struct Candidate {
  double points = 0;
  HangShape shape = HangShape::kUnclear;
  size_t instance = 0;  // index in WaitGraph::instances(); their number: no collective is involved
  std::string why;      // a clause whose subject is the rank
};

class Findings {
 public:
  // Requires that both arguments outlive the findings.
  Findings(const BlameFacts& facts, const WaitGraph& graph);

  const std::map<int32_t, Candidate>& candidates() const { return candidates_; }

 private:
  using Instance = WaitGraph::Instance;

  void judge_end(const WaitGraph::End& end);
  void judge_behind(const std::vector<int32_t>& ranks);
  void judge_cycle(const WaitGraph::End& end);
  void judge_all_entered(size_t instance);
  // Returns whether the members are in different calls. The members in the minority become
  // candidates.
  bool judge_mismatch(size_t instance);
  void judge_halted();
  void judge_left_over();
  void judge_python_waits();
  void judge_phases();
  void judge_steps();
  void judge_stacks();
  void add_runner_up();

  // The texts about an instance. Made once for each instance, however many ranks it concerns.
  struct Words {
    std::string what;         // "all-reduce 41 "layer 3 mlp" of fsdp"
    std::string wait;         // "ranks 0-4 wait (12.3 s)"
    std::string inside_text;  // "ranks 0-4"
    std::string awaited;      // "ranks 5-7": the ranks that the instance waits for
    std::string age;          // " (12.3 s)"
    RankSet inside_ranks;
  };
  const Words& words_of(size_t instance);

  size_t no_instance() const { return graph_.instances().size(); }
  std::vector<int32_t> all_ranks() const;
  std::vector<int32_t> all_inside() const;  // ranks inside any collective
  // Adds a candidate. Includes what facts_ has about its rank: points, clauses, and how early its
  // stack departs from `usual`. Each rank retains only its strongest finding.
  void add(int32_t rank, Candidate candidate, const BlameFacts::UsualStack& usual);
  std::string behind_text(int32_t rank, size_t instance, HangShape& shape, double& share);

  const BlameFacts& facts_;
  const WaitGraph& graph_;
  Witnesses witnesses_;
  std::map<size_t, Words> words_;
  std::map<int32_t, Candidate> candidates_;
};

}  // namespace muster::coordinator
