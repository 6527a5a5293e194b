// Ranks that slow their peers down: recognised by the time that each spends on its own steps,
// unlike those that wait for it. Pure.
//
// All ranks of a job take the same time for a step, because they wait for each other. They differ
// in what they do of it themselves:
//
//     own = step - waiting for peers - waiting for data
//
// each the median over the heartbeats of the last steps, so that one bad step is no trend. A rank
// is slow when its own time is kSlowRatio times the median rank's and far outside what the others
// differ by (0.6745 |x - median| / MAD; Iglewicz and Hoaglin 1993), while the others wait and it
// does not. A loader is slow when a rank waits for data, for a good part of the step, and the
// others do not. Either has to last before it is reported, and to be over for a while before that
// is.
//
// If many are slow, none is: the work is shared out unevenly, and no rank is to blame. Memory grows
// with the ranks; looks come with the slowest rank's steps. One thread at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "common/time.h"

namespace muster::coordinator {

enum class SlowKind { kNone, kCompute, kData };

class Stragglers {
 public:
  // The contents of a rank's page, since its attempt began.
  struct Sample {
    uint64_t steps = 0;
    double seconds = 0;          // of these steps together
    double collective_wait = 0;  // of them
    double data_wait = 0;        // of them
  };
  struct Change {
    size_t rank = 0;
    SlowKind kind = SlowKind::kNone;  // kNone: it is not slow any more
    double seconds = 0;               // a step: its own, or what it waits for data
    double median = 0;                // the same of the job's ranks
  };

  explicit Stragglers(size_t ranks) : ranks_(ranks), left_(ranks) {}

  void observe(size_t rank, const Sample& sample);
  // It has ended.
  void forget(size_t rank);
  // Whether all ranks have made enough steps since the last sample.
  bool sample_is_due() const { return left_ > 1 && ready_ == left_; }
  // Returns what has begun or ended. `now` may be of any clock.
  std::vector<Change> evaluate(Instant now);
  // The rank's own part of a step at the last sample, in multiples of the median rank's; 0: there
  // was none yet.
  double score(size_t rank) const { return ranks_[rank].score; }

 private:
  struct Rank {
    std::deque<Sample> samples;  // of the last steps, oldest first
    bool ended = false;
    bool ready = false;
    SlowKind seen = SlowKind::kNone;  // in the last looks …
    int32_t samples_seen = 0;         // … so many
    Instant since{};
    SlowKind reported = SlowKind::kNone;
    double score = 0;
  };
  // The times of one step, over a rank's window.
  struct Times {
    size_t rank = 0;
    double own = 0;
    double data = 0;
    double wait = 0;
    double step = 0;
  };

  static Times times_of(size_t index, const Rank& rank);
  static SlowKind judge(const Times& times, const Times& median, double spread, double ratio);

  std::vector<Rank> ranks_;
  size_t left_;       // that have not ended
  size_t ready_ = 0;  // of them
  uint64_t next_sample_ = 12;
};

}  // namespace muster::coordinator
