// Detects ranks that slow their peers down, by the time that each rank spends on its own part of a
// step. Pure.
//
// All ranks of a job take the same time for a step, because they wait for each other. They differ
// in the time for their own work:
//
//     own = step - waiting for peers - waiting for data
//
// Each term is the median over the heartbeats of the last steps, so that one bad step does not
// count. A rank is slow if its own time is kSlowRatio times the median rank's and far outside the
// spread of the others (0.6745 |x - median| / MAD; Iglewicz and Hoaglin 1993), while the other
// ranks wait for peers and the slow rank does not. A rank's data loader is slow if the rank waits
// for data for a large part of the step and the other ranks do not. Each condition must persist
// before it is reported, and must be absent for some time before its end is reported.
//
// Programs need not report waits. If no rank of a job does, samples of the main threads replace
// them: a rank's own time is the share of samples in which its main thread waits for no event. A
// rank is slow if it hardly ever waits, and its own time is kSampledRatio times the median rank's.
//
// If many ranks are slow, none is reported: the work is distributed unevenly, and no rank is to
// blame. Memory is O(ranks). The steps of the slowest rank determine when samples are due. Called
// on one thread at a time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/job/thread_samples.h"
#include "common/time/time.h"

namespace muster::coordinator {

// The share of its samples in which the main thread of a rank that waits for no other one is awake.
constexpr double kNeverWaits = 0.85;

enum class SlowKind { kNone, kCompute, kData };

class Stragglers {
 public:
  // The input from a rank's progress page, since its attempt began.
  struct Sample {
    uint64_t steps = 0;
    double seconds = 0;          // total time of these steps
    double collective_wait = 0;  // part of `seconds`
    double data_wait = 0;        // part of `seconds`
    ThreadSamples main_thread{};
  };
  struct Change {
    size_t rank = 0;
    // The rank's present state; kNone: it is no longer slow.
    SlowKind kind = SlowKind::kNone;
    // The rank's own time, or its wait for data, per step.
    double seconds = 0;
    double median = 0;  // as `seconds`, of the median rank
  };

  explicit Stragglers(size_t ranks) : ranks_(ranks), left_(ranks) {}

  // Records a rank's progress page.
  void observe(size_t rank, const Sample& sample);
  // Removes a rank that has ended.
  void forget(size_t rank);
  // Returns whether all ranks have completed enough steps since the last sample.
  bool sample_is_due() const { return left_ > 1 && ready_ == left_; }
  // Returns the ranks that became slow or stopped being slow. `now` may be on any clock.
  std::vector<Change> evaluate(Instant now);
  // The times of a rank's own part of a step, and of its wait for other ranks.
  struct Own {
    double compute = 0;
    double data = 0;
    double wait = 0;  // for other ranks
  };
  // The source of these times at the last evaluation. kNone: no rank reports waits, and main
  // threads are not sampled, so that all of a step counts as computation.
  enum class Source { kNone, kWaits, kSamples };
  // Return the values of the last evaluation.
  Own own(size_t rank) const { return ranks_[rank].own; }
  Source source() const { return source_; }
  // Returns the rank's own time per step at the last sample, as a multiple of the median rank's
  // time; 0 before the first sample.
  double score(size_t rank) const { return ranks_[rank].score; }

 private:
  struct Rank {
    // Samples of the last steps, oldest first. A deque would occupy 600 bytes when it is empty.
    std::vector<Sample> samples;
    bool ended = false;
    bool ready = false;
    SlowKind seen = SlowKind::kNone;  // the result of the last samples
    int32_t samples_seen = 0;         // consecutive samples with that result
    Instant since{};
    SlowKind reported = SlowKind::kNone;
    double score = 0;
    Own own{};
    ThreadSamples begin{};    // the begin of the current window of samples of the main thread
    double awake_share = -1;  // in the last complete window; -1: none is complete
  };
  // The times of one step, averaged over a rank's window.
  struct Times {
    size_t rank = 0;
    double own = 0;
    double data = 0;
    double wait = 0;
    double step = 0;
  };

  static Times times_of(size_t index, const Rank& rank);
  static SlowKind judge(const Times& times, const Times& median, double spread, double ratio);
  // Replaces the waits of the ranks by samples of their main threads. Returns false, and changes
  // nothing, if a rank reports waits or has too few samples.
  bool take_samples(std::vector<Times>& all) const;

  std::vector<Rank> ranks_;
  Source source_ = Source::kNone;
  size_t left_;       // ranks that have not ended
  size_t ready_ = 0;  // the ranks of left_ that are ready
  uint64_t next_sample_ = 12;
};

}  // namespace muster::coordinator
