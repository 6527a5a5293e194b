// The coordinator's decisions: a deterministic state machine without clock, I/O, threads or
// callbacks.
//
//   shell: events ──▶ Core::step(event, now, out) ──▶ actions: persist, then send and reply
//
// step() accepts any event: it never fails or throws. Stale, unknown or contradictory events are
// ignored, refused or answered with an error. Equal event sequences produce equal action sequences.
// Called only on the shell's core thread.
//
// Each subject owns its part of the state and has a folder of its own. It receives `now` and
// read-only views of lower layers, and returns facts and messages as values. The incident book is
// the only part of another layer that a subject may change. Only Core converts results to actions.
// A folder may include only itself and lower layers (checked by tests/tidy/tidy.py). From the
// lowest layer to the highest:
//
//   records/      values: jobs, incidents, accounts, nodes, workers
//   blame/        finds the ranks that block a job: a pure function of two samples of evidence
//   recovery/     decides whether an attempt is restarted, and which nodes a job avoids
//   incident/     the incident book, crash evidence, recoveries from faults
//   accounting/   classifies each job's time
//   queue/        all jobs, their order, and the bounds of client input
//   fleet/        workers, suspicion records of nodes, unkillable processes
//   placement/    assigns ranks to workers, and reserves workers for jobs
//   hang/         progress, suspicion and dumps of stacks
//   liveness/     workers that cannot be reached
//   live_attempt.h  the volatile state of one attempt
//   core.h        combines all subjects
//
// Files: core.cc contains the step and the restore after a restart; core_jobs.cc submission,
// cancellation and the queue pass; core_attempt.cc the life of one attempt; core_workers.cc
// registrations, heartbeats, exits and leases; core_nodes.cc exclusions and checks; core_ladder.cc
// the path of a job from suspicion to verdict; core_reach.cc unreachable workers; core_dumps.cc
// dumps of stacks and their symbols.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <absl/status/statusor.h>

#include "common/ids.h"
#include "common/time.h"
#include "coordinator/core/accounting/account_book.h"
#include "coordinator/core/action.h"
#include "coordinator/core/core_options.h"
#include "coordinator/core/durable_state.h"
#include "coordinator/core/event.h"
#include "coordinator/core/fleet/exclusions.h"
#include "coordinator/core/fleet/fleet.h"
#include "coordinator/core/hang/dump_table.h"
#include "coordinator/core/incident/incidents.h"
#include "coordinator/core/live_attempt.h"
#include "coordinator/core/placement/placement.h"
#include "coordinator/core/queue/job_queue.h"
#include "coordinator/core/queue/job_table.h"
#include "coordinator/core/queue/validation.h"
#include "coordinator/core/records/job.h"
#include "coordinator/core/records/step_time.h"

namespace muster::coordinator {

class Core {
 public:
  // After a restart, live jobs wait up to one lease for their workers to register again.
  Core(CoreOptions options, DurableState state, Instant now);

  // Processes the event and appends its actions to `out`. Requires that `now` never decreases.
  void step(const Event& event, Instant now, ActionList& out);

  // Returns when the shell must send the next Tick; nullopt if no deadline is pending. While the
  // core waits for workers or ranks, this is at most one heartbeat interval after the last step: a
  // longer gap shows that the coordinator itself was stalled.
  std::optional<Instant> next_deadline() const;

  const std::map<JobId, Job>& jobs() const { return jobs_.all(); }
  const std::map<WorkerName, Worker>& workers() const { return fleet_.all(); }
  const std::map<std::string, JobId>& request_ids() const { return jobs_.request_ids(); }
  const std::map<WorkerName, NodeRecord>& nodes() const { return nodes_.records(); }
  const CoreOptions& options() const { return options_; }
  Account account_of(const Job& job, Instant now) const;
  // Slots and exclusively assigned GPUs in use, by worker. use_by_worker() includes those reserved
  // for jobs.
  NodeUses use_by_worker() const;
  NodeUses held_by_worker() const;
  // Returns the largest `count_max` straggler scores, by rank; empty before the first sample.
  std::vector<std::pair<Rank, double>> straggler_scores(const Job& job, size_t count_max) const;

 private:
  // core.cc
  void on(const Tick& event);
  void restore(Job job);
  void excuse_own_stall(Instant now);
  void resume_backoffs();
  void emit(ActionList& out);
  void send(const Worker& worker, WorkerPayload payload);
  std::vector<JobId> live_jobs() const;
  bool any_job_needs_workers() const;

  // core_jobs.cc
  void on(const JobSubmitted& event);
  void on(const JobCancelRequested& event);
  void on(const JobCheckpointRequested& event);
  void schedule();
  void start(Job& job, std::vector<RankPlacement> placement);
  void send_start(const Job& job, const Worker& worker);

  // core_attempt.cc
  void rank_up(Job& job, Rank rank);
  void rank_gone(Job& job, Rank rank);
  void rank_exited(Job& job, RankExit exit, const WorkerName& worker);
  void preempt_ranks_of(const Worker& worker, Duration grace, const std::string& why);
  void fault(Job& job, Fault fault, Duration grace, IncidentKind kind = IncidentKind::kRankDied);
  void record_fault(Job& job, IncidentKind kind);
  void stop_ranks(Job& job, Duration grace, std::string_view reason);
  bool waits_for_save(const Job& job) const;
  void settle(Job& job);
  void conclude(Job& job);
  void end_attempt(Job& job);
  void finish(Job& job, JobState state, int32_t exit_code, std::string reason);
  void change(Job& job, JobTransition transition);
  void end_recovery(Job& job, IncidentId interrupted_by);
  void forget_attempt(const Job& job);
  void check_attempts();

  // core_workers.cc
  void on(const WorkerRegistered& event);
  void on(const WorkerDisconnected& event);
  void on(const WorkerLeaving& event);
  void on(const HeartbeatReceived& event);
  void on(const RankExited& event);
  void compare_running(Worker& worker, const WorkerRegistered& event);
  void observe_rank(Job& job, const RankProgress& progress);
  void judge_missing(Worker& worker);
  void lose_ranks_of(Job& job, const WorkerName& worker, std::optional<Incarnation> survivor,
                     std::string_view why);
  void stop_orphans(const Worker& worker, const std::set<RankId>& orphans);
  void check_leases();

  // core_nodes.cc
  void on(const NodeChecked& event);
  void on(const NodeExcludeRequested& event);
  void on(const NodeAdmitRequested& event);
  void suspect_node(const WorkerName& name, Suspicion suspicion, std::string reason);
  void check_node(Worker& worker);
  void conclude_check(Worker& worker, NodeCheckResult result);
  void check_nodes();
  void leave_stuck(Worker& worker, const std::vector<RankId>& ids);
  void check_stuck();

  // core_ladder.cc
  void climb(Job& job);
  void suspect(Job& job, std::string reason);
  void resume(Job& job, std::string_view reason);
  void leave_ladder(Job& job);
  void conclude_dump(Job& job);
  void sample_again(Job& job, const Dump& dump, bool unseen);
  void conclude_stuck(Job& job, const Dump& dump);
  Blame judge(const Job& job, const Dump& dump, IncidentKind kind,
              std::optional<IncidentId>& incident);
  void check_ladders();

  // core_reach.cc
  Duration loss_after(const Job& job, size_t missing) const;
  void check_reach(Job& job);
  void check_end(Job& job);
  void mark_unreachable(Job& job, const Worker& worker);
  void mark_reachable(Job& job, const WorkerName& name, std::string_view how);
  void give_up_ranks_of(Job& job, const WorkerName& name, std::string_view why);

  // core_dumps.cc
  void on(const StacksRequested& event);
  void on(const StackReportReceived& event);
  void on(const SymbolsReceived& event);
  bool await_symbols(const Dump& dump, OpenSymbols open);
  void end_symbols(const OpenSymbols& open);
  void answer_if_over(DumpId id);
  void check_dumps();

  CoreOptions options_;
  StoreId store_;
  JobTable jobs_;
  JobQueue queue_;
  Fleet fleet_;
  NodeBook nodes_;
  IncidentBook incidents_;
  AccountBook accounts_;
  DumpTable dumps_;
  std::map<JobId, LiveAttempt> attempts_;  // one for each live job
  std::set<JobId> suspects_;               // jobs in SUSPECT
  uint64_t last_check_ = 0;
  bool schedule_needed_ = false;
  // Jobs that were running when this coordinator started. Cleared by its first step.
  std::vector<JobId> restored_running_;
  // Jobs that were backing off when this coordinator started. Cleared when the time of day is
  // known.
  std::vector<JobId> backed_off_;

  // The step in progress.
  StepTime time_;
  ActionList actions_;
};

}  // namespace muster::coordinator
