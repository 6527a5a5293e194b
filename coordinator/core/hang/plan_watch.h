// Compares the steps of one attempt with the job's plan (muster.v1.JobSpec.planned_…): opens a
// finding when the median step of a window is longer than planned by more than kSlowerRatio, and
// ends it below kPlannedRatio. Pure; called on one thread at a time.
//
// The values are those of rank 0, as in the metrics muster_job_step_…: all ranks take the same time
// for a step, because they wait for each other. A step has four parts:
//
//     computation = step - communication - data      medians over the window
//     checkpoint  = stalls / steps                   from one save to a later one
//
// The window counts the time of steps, so interruptions do not shorten it. A stall occurs once in a
// checkpoint period, which may be longer than the window: stalls are counted over the whole periods
// of the window, at least the newest one. Until a period is complete, they count as planned.
//
// Some steps are not compared, because a plan does not describe them: the first steps of an
// attempt, which compile and tune; steps beside an evaluation or a save; and steps on fewer nodes.
// A rank that evaluates or saves also causes no finding.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <string_view>

#include "common/time/time.h"
#include "coordinator/core/event.h"
#include "coordinator/core/records/job.h"

namespace muster::coordinator {

enum class StepPart { kComputation, kCommunication, kData, kCheckpoint };
inline constexpr std::array<std::string_view, 4> kStepPartNames = {"computation", "communication",
                                                                   "data", "checkpoint"};
// Seconds, in the order of StepPart.
using StepPartSeconds = std::array<double, kStepPartNames.size()>;

// Returns the parts of a rank's steps since the attempt began.
StepPartSeconds step_parts(const RankProgress& progress);

class PlanWatch {
 public:
  // A job with planned_step_us = 0, or on fewer nodes, is never compared. `window`: the time whose
  // median step is compared.
  PlanWatch(const Job& job, Duration window);

  struct Finding {
    bool is_slower = false;  // false: the job is no longer slower than its plan
    double seconds = 0;      // a step with its share of the stalls
    double planned_seconds = 0;
    // The part that exceeds its plan by the most seconds, and by how many.
    StepPart part = StepPart::kComputation;
    double excess_seconds = 0;
  };

  // Records a progress page of rank 0. Returns a finding if the state changes.
  std::optional<Finding> observe(const RankProgress& progress, Instant now);

 private:
  // The counters of a page.
  struct Counters {
    Instant at;
    uint64_t steps = 0;
    uint64_t saved = 0;
    StepPartSeconds parts{};
  };
  // Steps between two pages.
  struct Interval {
    Duration time;
    StepPartSeconds per_step{};  // without stalls
  };

  void add_save(const Counters& page);
  bool add_steps(const Counters& page);
  Finding compare() const;

  double planned_seconds_ = 0;  // 0: the job is not compared
  StepPartSeconds planned_{};
  Duration window_;
  std::optional<Counters> latest_;  // the end of the newest interval; unset: it was interrupted
  std::deque<Interval> intervals_;  // oldest first
  Duration covered_{};              // the time of all intervals
  std::optional<uint64_t> saved_;   // saves in the newest page
  std::deque<Counters> saves_;      // the pages that first showed a save, oldest first
  bool is_slower_ = false;
};

}  // namespace muster::coordinator
