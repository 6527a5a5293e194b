// The progress that the ranks of one attempt report: whether the job may hang, who slows it
// down, and how far it has come. Volatile. Pure; one thread at a time.
#pragma once

#include <cstddef>
#include <map>
#include <utility>
#include <vector>

#include "common/ids.h"
#include "common/time.h"
#include "coordinator/core/core_options.h"
#include "coordinator/core/event.h"
#include "coordinator/core/hang/hang_detector.h"
#include "coordinator/core/hang/stragglers.h"
#include "coordinator/core/incident/incidents.h"
#include "coordinator/core/incident/recovery_times.h"
#include "coordinator/core/records/job.h"
#include "coordinator/core/records/step_time.h"

namespace muster::coordinator {

struct AttemptProgress {
  // For a new attempt, or one that an earlier life of the coordinator has started.
  AttemptProgress(const CoreOptions& options, const Job& job, Instant now);

  // A page that came with a heartbeat.
  void observe(const RankProgress& progress, Instant now);
  // Pages that a dump brings are newer than those of heartbeats that are on their way.
  void correct(const StackReportReceived& report, size_t ranks, Instant now);
  // The rank has ended.
  void forget(Rank rank);
  // Opens and closes incidents of slow ranks, when enough steps were made since the last time. A
  // slow rank is recorded and nothing else: a restart costs more than slow steps.
  void record_stragglers(IncidentBook& incidents, const Job& job, const StepTime& time);
  // The attempt has ended, and with it the incidents of its slow ranks.
  void close_stragglers(IncidentBook& incidents, int64_t unix_ns);
  // The largest `count_max` scores of Stragglers by rank; empty before the first sample.
  std::vector<std::pair<Rank, double>> straggler_scores(const Job& job, size_t count_max) const;
  // The last progress that the ranks show, by what they report or write; now if they show none.
  Instant last_progress(const Job& job, Instant now) const;

  HangDetector hang;
  Stragglers stragglers;
  AttemptWatch steps;
  // The open incidents.
  std::map<Rank, IncidentId> slow;
};

}  // namespace muster::coordinator
