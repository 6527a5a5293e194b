// Recent counts of out-of-memory kills in a rank's control group. A kill long before the end of a
// rank, which may run for weeks, does not explain this end.
#pragma once

#include <cstdint>
#include <deque>

#include "common/time/time.h"
#include "worker/stacks/process_evidence.h"

namespace muster::worker {

// The maximum age of a kill that explains the end of a rank, and of a kernel message about the kill
// of its pid: an older message belongs to another process with this pid.
constexpr Duration kOomKillAge = std::chrono::seconds(30);

class OomKillHistory {
 public:
  OomKillHistory() = default;
  // Reads the counter for the first time. `now`: the rank's start.
  OomKillHistory(OomKillCounter counter, Instant now);

  const OomKillCounter& counter() const { return counter_; }
  // Adds the count that was read at `at`. Ignores counts that are unavailable, and times before an
  // earlier sample. Requires no regular interval: the rise of a count is as recent as the first
  // sample that has it.
  void add(int64_t count, Instant at);
  // Returns the count kOomKillAge before `now`, or at the rank's start if that is later; -1 if the
  // count was not available at the rank's start.
  int64_t count_before(Instant now) const;

 private:
  // A count, and the time of the first sample that had it.
  struct Sample {
    Instant at{};
    int64_t count = -1;
  };

  OomKillCounter counter_;
  // Ascending times and different counts, from the one that was valid kOomKillAge ago.
  std::deque<Sample> samples_;
};

}  // namespace muster::worker
