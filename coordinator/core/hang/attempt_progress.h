// The progress that the ranks of one attempt report: whether the job may hang, which ranks slow the
// job down, whether its steps are slower than planned or before, and how many steps are completed.
// Volatile. Pure; called on one thread at a time.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "common/job/ids.h"
#include "common/time/time.h"
#include "coordinator/core/core_options.h"
#include "coordinator/core/event.h"
#include "coordinator/core/hang/hang_detector.h"
#include "coordinator/core/hang/rank_history.h"
#include "coordinator/core/hang/slow_node_watch.h"
#include "coordinator/core/hang/step_watch.h"
#include "coordinator/core/hang/stragglers.h"
#include "coordinator/core/incident/incident_book.h"
#include "coordinator/core/incident/recovery_times.h"
#include "coordinator/core/records/core_time.h"
#include "coordinator/core/records/job.h"

namespace muster::coordinator {

struct AttemptProgress {
  // Begins with a new attempt, or with an attempt that started before this coordinator did.
  AttemptProgress(const CoreOptions& options, const Job& job, Instant now);

  // Records a progress page from a heartbeat.
  void observe(const RankProgress& progress, Instant now);
  // Records the pages in a dump, which may be newer than the last heartbeats.
  void correct(const StackReportReceived& report, size_t ranks, Instant now);
  // Removes a rank that has ended.
  void forget(Rank rank);
  // Opens and closes incidents of slow ranks, if enough steps were completed since the last
  // evaluation, and returns whether this was the case. A slow rank is only recorded, because a
  // restart costs more than slow steps.
  bool record_stragglers(IncidentBook& incidents, const Job& job, const CoreTime& time);
  // Opens the incident of a job that is slower than its plan, or than its own earlier steps, and
  // closes it when it no longer is. `page`: of any rank.
  void record_slow_steps(IncidentBook& incidents, const Job& job, const RankProgress& page,
                         const CoreTime& time);
  // Opens an incident if a program reports a loss that is not finite, once per attempt. Closes it
  // if the rank reports a finite loss again. The program decides whether training continues.
  void record_loss(IncidentBook& incidents, const Job& job, const RankProgress& page,
                   const CoreTime& time);
  // Closes the incidents of slow ranks, slow steps and losses when the attempt has ended.
  void close_incidents(IncidentBook& incidents, int64_t unix_ns);
  // Returns the largest `count_max` straggler scores by rank; empty before the first sample.
  std::vector<std::pair<Rank, double>> straggler_scores(const Job& job, size_t count_max) const;
  // Returns the time of the last progress of any rank, by its pages or output; `now` if no rank
  // shows progress.
  Instant last_progress(const Job& job, Instant now) const;

  // Returns ranks that may explain slow steps: those with an incident, then those whose own work
  // takes clearly longer than the median rank's, slowest first.
  std::vector<Suspect> slow_ranks(const Job& job) const;

  HangDetector hang;
  Stragglers stragglers;
  RankHistory rank_history;
  StepWatch step_watch;
  SlowNodeWatch slow_node_watch;
  AttemptWatch steps;
  // The open incidents of slow ranks, and of a job that is slower than its plan or than before.
  struct SlowRank {
    IncidentId id;
    SlowKind kind = SlowKind::kNone;
  };
  std::map<Rank, SlowRank> slow;
  std::optional<IncidentId> slower_than_plan;
  std::optional<IncidentId> slower_than_before;
  // The incident of a loss that is not finite, and the rank that reported it; rank -1: closed.
  std::optional<std::pair<Rank, IncidentId>> not_finite;

 private:
  Incident incident_of_slow_steps(const Job& job, const StepFinding& finding, IncidentKind kind,
                                  const CoreTime& time) const;
};

}  // namespace muster::coordinator
