// Compares the steps of one attempt with the job's plan (muster.v1.JobSpec.planned_…), and with the
// attempt's own earlier steps. Pure; called on one thread at a time.
//
// Against the plan: a finding opens if the median step of a window is longer than planned by more
// than kSlowerRatio, and closes below kUsualRatio. A plan does not describe jobs on fewer nodes.
//
// Against the history: the reference is the median of the attempt's first kHistoryWindows windows,
// from kHistoryWindowsMin on, and fixed when it is complete. A finding opens if the typical step of
// a window (StepWindow::Values::middle) exceeds the reference by more than kSlowerRatio and by more
// than kNoiseTimes the noise of such values, the lower quartile of the window exceeds the upper
// quartile of the history, and all this continues for a whole window; a longer stall must also
// occur at the next save. If a step processes more tokens than before, as in a ramp of the batch
// size, the reference grows in proportion. No finding opens while the plan's finding covers it.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "common/time/time.h"
#include "coordinator/core/event.h"
#include "coordinator/core/hang/step_window.h"
#include "coordinator/core/records/job.h"

namespace muster::coordinator {

struct StepFinding {
  bool is_slower = false;  // false: the job is no longer slower than the reference
  double seconds = 0;      // a step with its share of the stalls
  double reference_seconds = 0;
  // The part that exceeds the reference by the most seconds, and by how many.
  StepPart part = StepPart::kComputation;
  double excess_seconds = 0;
  // The tokens of a step, as a multiple of those of the reference; at least 1.
  double growth = 1;
  // False if rank 0 reports no waits, so that all its time counts as computation.
  bool part_is_known = false;
};

class StepWatch {
 public:
  // `window`: the time whose median step is compared.
  StepWatch(const Job& job, Duration window);

  struct Findings {
    // Set if their states change.
    std::optional<StepFinding> plan, history;
    // The newest window is a part of the history from now on.
    bool adds_to_history = false;
  };

  // Returns the median step of the newest window, without stalls; 0 until the first is complete.
  double seconds() const { return seconds_; }

  // Records a progress page of rank 0.
  Findings observe(const RankProgress& progress, Instant now);

 private:
  // The values with which a window is compared.
  struct Reference {
    double seconds = 0;
    StepPartSeconds parts{};
    double growth = 1;
    // The upper quartile and the noise of `seconds`. Only the history has them.
    double high = 0;
    double noise = 0;
  };

  static StepFinding compare(const StepWindow::Values& window, const Reference& reference);
  Reference history_of(const StepWindow::Values& window) const;
  std::optional<StepFinding> compare_plan(const StepWindow::Values& window);
  std::optional<StepFinding> compare_history(const StepWindow::Values& window);
  bool add_to_history(const StepWindow::Values& window);

  std::optional<Reference> plan_;
  StepWindow window_;
  double seconds_ = 0;
  bool slower_than_plan_ = false;
  // The step's time in the first window of the plan's finding, and StepWindow::counted() when it
  // opened.
  double opened_seconds_ = 0;
  Duration opened_at_{};
  bool slower_than_before_ = false;
  // The windows of the history, none of which overlaps another one, and their known stalls.
  std::vector<StepWindow::Values> history_;
  std::vector<double> stalls_;
  // StepWindow::counted() at the newest of these windows, and when the steps began to exceed the
  // history.
  Duration remembered_at_{};
  std::optional<Duration> exceeds_since_;
  int32_t exceeding_ = 0;       // windows since then
  uint64_t exceeds_saved_ = 0;  // StepWindow::Values::saved then
  uint64_t stalls_saved_ = 0;   // the same at the newest of stalls_
};

}  // namespace muster::coordinator
