// How a job comes back from a fault: the moments that its incident's Recovery gets. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "common/progress_page.h"
#include "common/time.h"
#include "coordinator/core/records/incident.h"

namespace muster::coordinator {

// How far an attempt has come, by its ranks' pages. Volatile, because they report it again. Costs
// O(1) for each page.
class AttemptWatch {
 public:
  explicit AttemptWatch(size_t ranks) : loaded_(ranks) {}

  struct News {
    bool loaded = false;      // now the last rank has begun to train
    bool first_step = false;  // now the first one has completed a step
  };
  News observe(size_t rank, Phase phase, int64_t step, uint64_t steps_made);

  int64_t newest_step() const { return newest_; }  // -1: none is known
  int64_t base_step() const { return base_; }      // that it went on from; the same
  bool made_a_step() const { return made_a_step_; }

 private:
  std::vector<bool> loaded_;
  size_t count_ = 0;
  bool made_a_step_ = false;
  int64_t base_ = -1;
  int64_t newest_ = -1;
};

// The first time counts, and no moment is before an earlier one: the wall clock may have been set
// meanwhile.
void mark(Recovery& recovery, RecoveryMoment moment, int64_t unix_ns);

// The moments of the next attempt begin anew: one that was preempted has not brought the job back.
void begin_attempt(Recovery& recovery, int64_t unix_ns);

}  // namespace muster::coordinator
