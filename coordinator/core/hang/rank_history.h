// The earlier times of each rank's own part of a step, which show the ranks that a job waits for
// when its steps have become slower. Pure; called on one thread at a time.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "coordinator/core/hang/step_watch.h"
#include "coordinator/core/hang/stragglers.h"
#include "coordinator/core/records/incident.h"
#include "coordinator/core/records/job.h"

namespace muster::coordinator {

class RankHistory {
 public:
  explicit RankHistory(size_t ranks) : times_(ranks) {}

  size_t ranks() const { return times_.size(); }

  // Records the ranks' times at the last evaluation, at most kRankTimesMax times.
  void remember(const Stragglers& stragglers);

  // Returns whether earlier times from the present source of `stragglers` are known.
  bool is_known(const Stragglers& stragglers) const;
  // Returns the median of the rank's earlier times. Requires is_known().
  double before(size_t rank, double Stragglers::Own::*time) const;

  struct Explanation {
    // The ranks whose own part of a step takes longer than before, worst first. A node of which
    // most ranks do is one suspect, without a rank.
    std::vector<Suspect> suspects;
    // A clause about all ranks, if these are too many, or if there are none; may be empty.
    std::string clause;
    // False if there are no earlier times to compare with.
    bool is_known = false;
  };
  // Explains steps that take longer than before. Requires a finding against the history.
  Explanation explain(const Stragglers& stragglers, const Job& job,
                      const StepFinding& finding) const;

 private:
  std::vector<std::vector<Stragglers::Own>> times_;  // by rank, oldest first
  Stragglers::Source source_ = Stragglers::Source::kNone;
};

}  // namespace muster::coordinator
