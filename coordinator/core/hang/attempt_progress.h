// The progress that the ranks of one attempt report: whether the job may hang, which ranks slow the
// job down, and how many steps are completed. Volatile. Pure; called on one thread at a time.
#pragma once

#include <cstddef>
#include <map>
#include <utility>
#include <vector>

#include "common/job/ids.h"
#include "common/time/time.h"
#include "coordinator/core/core_options.h"
#include "coordinator/core/event.h"
#include "coordinator/core/hang/hang_detector.h"
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
  // evaluation. A slow rank is only recorded, because a restart costs more than slow steps.
  void record_stragglers(IncidentBook& incidents, const Job& job, const CoreTime& time);
  // Closes the incidents of slow ranks when the attempt has ended.
  void close_stragglers(IncidentBook& incidents, int64_t unix_ns);
  // Returns the largest `count_max` straggler scores by rank; empty before the first sample.
  std::vector<std::pair<Rank, double>> straggler_scores(const Job& job, size_t count_max) const;
  // Returns the time of the last progress of any rank, by its pages or output; `now` if no rank
  // shows progress.
  Instant last_progress(const Job& job, Instant now) const;

  HangDetector hang;
  Stragglers stragglers;
  AttemptWatch steps;
  // The open incidents of slow ranks.
  std::map<Rank, IncidentId> slow;
};

}  // namespace muster::coordinator
