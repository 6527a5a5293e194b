// The volatile state of one live attempt, with one member for each subject. Rebuilt after a
// coordinator restart. Pure; called on one thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/job/ids.h"
#include "common/progress/save_progress.h"
#include "common/time/time.h"
#include "coordinator/core/core_options.h"
#include "coordinator/core/event.h"
#include "coordinator/core/fleet/fleet.h"
#include "coordinator/core/fleet/unkillable.h"
#include "coordinator/core/hang/attempt_progress.h"
#include "coordinator/core/hang/ladder.h"
#include "coordinator/core/incident/crash_evidence.h"
#include "coordinator/core/incident/incident_book.h"
#include "coordinator/core/liveness/links.h"
#include "coordinator/core/liveness/reach.h"
#include "coordinator/core/placement/growth.h"
#include "coordinator/core/records/attempt_record.h"
#include "coordinator/core/records/core_time.h"
#include "coordinator/core/records/job.h"

namespace muster::coordinator {

struct LiveAttempt {
  LiveAttempt(const CoreOptions& options, const Job& job, Instant now);

  // Records a progress page from a heartbeat in the attempt and in the job's record, and opens and
  // closes incidents of slow ranks, nodes and steps. Returns whether Job::slow_nodes has changed.
  bool observe(Job& job, const RankProgress& progress, SlowNodePolicy policy,
               IncidentBook& incidents, const CoreTime& time);
  // Returns the record of the attempt up to now, without its end.
  AttemptRecord record(const Job& job) const;
  // Returns the record of the attempt, which ends now for the reason `end`. Requires the attempt's
  // placement and its newest fault, if any, in `job`.
  AttemptRecord record_of_end(const Job& job, std::string end, int64_t unix_ns) const;
  // Extends the deadline of ranks that were ordered to stop, if their save makes progress.
  void follow_saves(const Job& job, const CoreOptions& options, Instant now);
  // Records that the rank was started. Has an effect only on a rank that was not up before.
  void bring_up(Job& job, Rank rank);
  // Records that the rank has ended or is lost.
  void end_rank(Job& job, Rank rank);
  // Records that a rank that was declared lost is running.
  void revive_rank(Job& job, Rank rank);
  // Return whether every rank was up once, or has ended. Take constant time.
  bool all_were_up() const { return assigned_ == 0; }
  bool all_ended() const { return left_ == 0; }
  // Records that the worker became unreachable. Returns the text for the job's reason.
  std::string mark_unreachable(const Worker& worker, IncidentBook& incidents, const CoreTime& time);
  // Records that the worker is reachable again. `how`: a clause with the evidence. Returns the step
  // back to RUNNING for a job that was suspect only because of unreachable workers.
  std::optional<LadderStep> mark_reachable(const Job& job, const WorkerName& name,
                                           std::string_view how, IncidentBook& incidents,
                                           DumpTable& dumps, const CoreTime& time);
  // Starts the deadline for the ranks to end after the order to stop. The attempt's other deadlines
  // no longer apply.
  void expect_ends(Job& job, Duration grace, const CoreOptions& options, Instant now);
  // Ends the retention of the attempt's incidents. Requires that the attempt has ended.
  void release(IncidentBook& incidents) const;
  // Excludes coordinator downtime of `time` that ended at `now`: extends every deadline, one that
  // began meanwhile by the time since then.
  void excuse(Duration time, Instant now);
  // Returns the attempt's next deadline.
  std::optional<Instant> next_deadline(const Job& job, const Fleet& fleet, Instant now) const;

  ReachView view(const Job& job) const {
    return {job, ranks, progress.hang, victim_deadline.has_value()};
  }
  LadderView ladder_view(const Job& job, const Fleet& fleet, Instant now);
  // Returns the cut link, at most kCutLinkAgeMax old: a job may have ten thousand nodes, and their
  // reports arrive one by one.
  const std::optional<CutLink>& cut_link(const Job& job, const Fleet& fleet, Instant now);

  RanksByWorker ranks;
  AttemptProgress progress;
  Growth growth;
  Ladder ladder;
  Reach reach;
  StalledLinks links;
  KillDeadline kill;
  // The deadline for every rank to be up. Set while the job is STARTING.
  std::optional<Instant> start_deadline;
  // The time at which every rank was up, or at which this coordinator found that this was the case.
  std::optional<Instant> up_at;
  // The time at which this coordinator started the attempt, and from then to its first step.
  std::optional<Instant> began;
  std::optional<Duration> start_time;
  // The steps of a checkpoint that must be exceeded before the job leaves its slow nodes, if it
  // does so, and the time of the next decision about this.
  std::optional<int64_t> leave_after;
  Instant next_slow_check{};
  // The time at which the attempt ends without a known culprit. Set when a rank has reported the
  // loss of a peer and no rank has reported a fault of its own.
  std::optional<Instant> victim_deadline;
  // The number of steps that a requested checkpoint must exceed. Set while a caller waits for a
  // checkpoint.
  std::optional<int64_t> checkpoint_after;
  // The incident that records the current suspicion of a hang, or its verdict.
  std::optional<IncidentId> incident;
  CrashEvidence crash;

 private:
  // Job::ranks changes only through this object, so that these equal the counts and the sum of it.
  int64_t assigned_ = 0;  // ranks that were not up yet
  int64_t left_ = 0;      // ranks that have not ended
  SaveProgress saves_;
  std::optional<CutLink> cut_link_;
  Instant cut_link_at_{};  // the time at which it was found
};

}  // namespace muster::coordinator
