// The milestones of a recovery, as an incident's Recovery stores them. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "common/progress/progress_page.h"
#include "common/time/time.h"
#include "coordinator/core/records/incident.h"

namespace muster::coordinator {

// The progress of an attempt according to its ranks' pages. Volatile, because later pages contain
// the same information. O(1) per page.
class AttemptWatch {
 public:
  explicit AttemptWatch(size_t ranks) : loaded_(ranks) {}

  struct News {
    bool loaded = false;      // this page is the first that shows all ranks training
    bool first_step = false;  // this page is the first that shows a completed step
  };
  // Records a page. Returns the milestones that the attempt reaches with this page.
  News observe(size_t rank, Phase phase, int64_t step, uint64_t steps_made);

  int64_t newest_step() const { return newest_; }  // -1: none is known
  // Returns the step from which the attempt resumed; -1: not known.
  int64_t base_step() const { return base_; }
  bool made_a_step() const { return made_a_step_; }

 private:
  std::vector<bool> loaded_;
  size_t count_ = 0;
  bool made_a_step_ = false;
  int64_t base_ = -1;
  int64_t newest_ = -1;
};

// Sets a milestone, unless it is already set. The value is at least that of the previous milestone,
// because the wall clock may have been set back meanwhile.
void mark(Recovery& recovery, RecoveryMoment moment, int64_t unix_ns);

// Clears the milestones that belong to the next attempt, because an attempt that was preempted has
// not recovered the job.
void begin_attempt(Recovery& recovery, int64_t unix_ns);

}  // namespace muster::coordinator
