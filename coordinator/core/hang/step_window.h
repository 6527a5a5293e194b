// The time of rank 0's steps in a sliding window, by part. Pure; called on one thread at a time.
//
// Rank 0 stands for the job, as in the metrics muster_job_step_…: all ranks take the same time for
// a step, because they wait for each other. A step has four parts:
//
//     computation = step - communication - data      medians over the window
//     checkpoint  = stalls / steps                   from one save to a later one
//
// The window counts the time of steps, so interruptions do not shorten it. A stall occurs once in a
// checkpoint period, which may be longer than the window: stalls are counted over the whole periods
// of the window, at least the newest one. Until a period is complete, they are not known.
//
// Some steps do not count: the first steps of an attempt, which compile and tune, and steps beside
// an evaluation or a save.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string_view>
#include <vector>

#include "common/time/time.h"
#include "coordinator/core/event.h"

namespace muster::coordinator {

enum class StepPart { kComputation, kCommunication, kData, kCheckpoint };
inline constexpr std::array<std::string_view, 4> kStepPartNames = {"computation", "communication",
                                                                   "data", "checkpoint"};
// Seconds, in the order of StepPart.
using StepPartSeconds = std::array<double, kStepPartNames.size()>;

// Returns the parts of a rank's steps since the attempt began.
StepPartSeconds step_parts(const RankProgress& progress);

class StepWindow {
 public:
  explicit StepWindow(Duration window) : window_(window) {}

  // Records a progress page of rank 0. Returns whether values() has changed and is complete.
  bool add(const RankProgress& progress, Instant now);

  struct Values {
    double seconds = 0;             // a step without stalls
    StepPartSeconds parts{};        // `checkpoint`: 0
    std::optional<double> stall{};  // per step
    // The tokens of rank 0 in a step; 0: it reports none.
    double tokens = 0;
    // Saves since the attempt began.
    uint64_t saved = 0;
    // The mean of the steps between the quartiles. Unlike the median, it does not jump if steps
    // have two lengths.
    double middle = 0;
    // The quartiles of `seconds`, and its standard error if steps are independent of each other.
    double low = 0;
    double high = 0;
    double error = 0;
  };
  // Requires that add() has returned true.
  Values values() const;
  // The time of the steps in the window, which is longer than `window` if a step is.
  Duration covered() const { return covered_; }
  // Returns the time of all steps that have counted since the attempt began.
  Duration counted() const { return counted_; }

 private:
  // The counters of a page.
  struct Counters {
    Instant at;
    uint64_t steps = 0;
    uint64_t saved = 0;
    StepPartSeconds parts{};
    double tokens = 0;  // those of rank 0 since the attempt began
  };
  // Steps between two pages.
  struct Interval {
    Duration time;
    StepPartSeconds per_step{};  // without stalls
    double tokens = 0;           // per step
  };

  void add_save(const Counters& page);
  bool add_steps(const Counters& page);

  Duration window_;
  std::optional<Counters> latest_;  // the end of the newest interval; unset: it was interrupted
  std::deque<Interval> intervals_;  // oldest first
  Duration covered_{};              // the time of all intervals
  Duration counted_{};
  std::optional<uint64_t> saved_;  // saves in the newest page
  std::deque<Counters> saves_;     // the pages that first showed a save, oldest first
};

}  // namespace muster::coordinator
