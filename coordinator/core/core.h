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
// read-only views of lower layers, and returns its decisions as values: facts, steps, messages.
// Core calls the subjects in order, carries out their decisions, and collects the actions. A
// subject changes only two things of other layers: the incident book, because an incident collects
// the findings of several subjects; and those fields of a job's record that the subject's header
// names. Only attempt/ combines the states of other subjects. A folder may include only itself and
// lower layers (checked by tests/tidy/tidy.py). From the lowest layer to the highest:
//
//   records/      values: jobs, incidents, accounts, nodes, workers
//   blame/        finds the ranks that block a job: a pure function of two samples of evidence
//   recovery/     decides whether an attempt is restarted, and which nodes a job avoids
//   incident/     the incident book, crash evidence, recoveries from faults
//   accounting/   classifies each job's time
//   queue/        all jobs, their order and back-offs, and the bounds of client input
//   fleet/        workers, exclusions and checks of nodes, unkillable processes
//   sweep/        deep checks of idle nodes, and the search for bad links between them
//   placement/    assigns ranks to workers, and reserves workers for jobs
//   hang/         progress, dumps of stacks, and the ladder from suspicion to verdict
//   liveness/     workers that cannot be reached
//   attempt/      the live attempts: combines the subjects above, and decides how an attempt ends
//   core.h        combines all subjects
//
// Files: core.cc contains the step and the restore after a restart; core_jobs.cc submission,
// cancellation and the queue pass; core_limits.cc dependencies and time limits; core_policy.cc
// quotas and usage; core_update.cc revisions of a job's spec; core_slow_nodes.cc jobs that leave
// slow nodes; core_attempt.cc the life of one attempt; core_workers.cc registrations, heartbeats,
// exits and leases; core_nodes.cc exclusions, checks and processes that cannot be killed;
// core_sweep.cc deep checks of idle nodes; core_ladder.cc dumps of stacks, and the steps of jobs
// that may hang; core_reach.cc unreachable workers.
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

#include "common/job/ids.h"
#include "common/time/time.h"
#include "coordinator/core/accounting/ledger_table.h"
#include "coordinator/core/action.h"
#include "coordinator/core/attempt/attempt_table.h"
#include "coordinator/core/core_options.h"
#include "coordinator/core/durable_state.h"
#include "coordinator/core/event.h"
#include "coordinator/core/fleet/exclusions.h"
#include "coordinator/core/fleet/fleet.h"
#include "coordinator/core/fleet/pending_node_checks.h"
#include "coordinator/core/hang/dump.h"
#include "coordinator/core/hang/dump_table.h"
#include "coordinator/core/hang/ladder.h"
#include "coordinator/core/incident/incident_book.h"
#include "coordinator/core/placement/placement.h"
#include "coordinator/core/placement/placement_pass.h"
#include "coordinator/core/queue/dependencies.h"
#include "coordinator/core/queue/job_queue.h"
#include "coordinator/core/queue/job_table.h"
#include "coordinator/core/queue/running_use.h"
#include "coordinator/core/queue/usage_table.h"
#include "coordinator/core/queue/validation.h"
#include "coordinator/core/records/core_time.h"
#include "coordinator/core/records/job.h"
#include "coordinator/core/records/queue_policy.h"
#include "coordinator/core/sweep/check_history.h"
#include "coordinator/core/sweep/sweep.h"

namespace muster::coordinator {

// A user or a team, with its quota and its use of the fleet.
struct ShareRow {
  Party party{};
  Quota quota{};
  double usage_rank_seconds = 0;
  QuotaUses uses{};
};

class Core {
 public:
  // After a restart, live jobs wait up to one lease for their workers to register again.
  Core(CoreOptions options, DurableState state, Instant now);

  // Processes the event, makes the queue pass that the event may require, and appends the actions
  // to `out`. Requires that `now` never decreases.
  void step(const Event& event, Instant now, ActionList& out);
  // The parts of step(), for a shell that processes many events at one time: take() processes an
  // event without the queue pass, and place_jobs() makes at most one pass for all events since the
  // last one. Each appends its records before its messages. Requires that place_jobs() follows the
  // last take() before the shell waits.
  void take(const Event& event, Instant now, ActionList& out);
  void place_jobs(ActionList& out);

  // Returns when the shell must send the next Tick; nullopt if no deadline is pending. While the
  // core waits for workers or ranks, this is at most one heartbeat interval after the last step: a
  // longer gap shows that the coordinator itself was stalled.
  std::optional<Instant> next_deadline() const;

  // Returns the workers whose leases a Tick at `now` would end. The shell lists those of them that
  // have sent messages which it has not read yet in Tick::unread, and their leases then continue.
  // Visits the workers only if a lease may have ended.
  std::vector<WorkerName> silent_workers(Instant now) const { return fleet_.expiring(now); }
  // Returns how often workers report.
  const Pace& pace() const { return fleet_.pace(); }

  const std::map<JobId, Job>& jobs() const { return jobs_.all(); }
  const std::map<WorkerName, Worker>& workers() const { return fleet_.all(); }
  const std::map<std::string, JobId>& request_ids() const { return jobs_.request_ids(); }
  const std::map<WorkerName, NodeRecord>& nodes() const { return nodes_.records(); }
  const CoreOptions& options() const { return options_; }
  // Returns the newest sweep; null: there was none.
  const Sweep* sweep() const { return sweep_ ? &*sweep_ : nullptr; }
  const CheckHistory& deep_checks() const { return deep_checks_; }
  // Returns the job's account as of `now`.
  Account account_of(const Job& job, Instant now) const;
  // Returns the record of the job's live attempt up to now; nullopt if it has none.
  std::optional<AttemptRecord> attempt_of(const Job& job) const;
  // Return slots and exclusively assigned GPUs, by worker: in use or reserved (use_by_worker), or
  // only reserved for jobs (held_by_worker).
  NodeUses use_by_worker() const;
  NodeUses held_by_worker() const;
  // Return the same for one worker, without visiting the ranks of all others.
  NodeUse use_of(const WorkerName& worker) const;
  NodeUse held_of(const WorkerName& worker) const;
  // Returns null if there is no policy.
  const QueuePolicy* policy() const { return policy_ ? &*policy_ : nullptr; }
  // Returns the users and teams with jobs, usage or an entry in the policy: users by name, then
  // teams by name.
  std::vector<ShareRow> shares() const;
  // Returns the number of incidents that are not over.
  size_t open_incidents() const { return incidents_.open_count(); }
  // Returns the largest `count_max` straggler scores, by rank; empty before the first sample.
  std::vector<std::pair<Rank, double>> straggler_scores(const Job& job, size_t count_max) const;

 private:
  // core.cc
  void process(const Event& event, Instant now);
  void on(const Tick& event);
  void excuse(Duration time, Instant now);
  void emit(ActionList& out);

  // core_jobs.cc
  void on(const JobSubmitted& event);
  void on(const JobCancelRequested& event);
  void on(const JobCheckpointRequested& event);
  void schedule();
  void note_outage();
  void start(Job& job, std::vector<RankPlacement> placement);

  // core_limits.cc
  void release_dependents();
  std::optional<Duration> time_left(const Job& job) const;
  std::optional<Instant> latest_end(const Job& job) const;
  JobEnds ends_by_limit() const;
  Instant all_ended_by(const std::vector<JobId>& backfilled) const;
  void end_at_time_limits();

  // core_policy.cc
  void on(const QueuePolicyChanged& event);
  bool has_gpus() const;
  absl::Status check_policy(const JobSpec& spec) const;
  void charge_usage();
  void set_fair_shares(std::vector<JobQueue::Entry>& entries) const;
  void set_place_behind(const std::vector<JobQueue::Entry>& entries, JobQueue::Entry& entry) const;

  // core_update.cc
  void on(const JobUpdateRequested& event);
  void withdraw_update(const JobUpdateRequested& event, Job& job);
  void leave_for_update(Job& job);
  void watch_revision(Job& job, const RankProgress& progress);
  bool awaits_checkpoint(const Job& job) const;
  bool begin_trial_steps(Job& job);
  void finish_passed_trial(Job& job, std::string result);
  void end_silent_trials();

  // core_slow_nodes.cc
  std::string action_on_slow_nodes(const Job& job, const std::vector<SlowNode>& slow) const;
  void watch_slow_nodes(Job& job);

  // core_attempt.cc
  void rank_up(Job& job, Rank rank);
  void end_rank(Job& job, RankExit exit, const WorkerName& worker);
  void preempt_ranks_of(const Worker& worker, Duration grace, const std::string& why);
  void fault(Job& job, Fault fault, Duration grace = Duration::zero());
  void settle(Job& job);
  void end_attempt(Job& job);
  // Records that the logs of the job's attempt, which ends, are on this coordinator's disk.
  void note_log_leader(Job& job) const;
  void finish(Job& job, JobState state, int32_t exit_code, std::string reason);

  // core_workers.cc
  void on(const WorkerRegistered& event);
  void adapt_pace(const WorkerName& newcomer);
  void on(const WorkerDisconnected& event);
  void on(const WorkerLeaving& event);
  void on(const HeartbeatReceived& event);
  void on(const RankExited& event);
  void compare_running(Worker& worker, const WorkerRegistered& event);
  void observe_rank(Job& job, const RankProgress& progress);
  void judge_missing(Worker& worker);
  void lose_ranks_of(Job& job, const WorkerName& worker, std::optional<Incarnation> survivor,
                     std::string_view why);
  Instant renewed_lease_end(const Worker& worker) const;
  void end_lease_of(const WorkerName& name, std::string_view why);
  std::string silence_of_lease(const Worker& worker) const;

  // core_nodes.cc
  void on(const NodeChecked& event);
  void on(const NodeExcludeRequested& event);
  void drain_nodes();
  void on(const NodeAdmitRequested& event);
  void suspect_node(const WorkerName& name, NodeSuspicion suspicion);
  void check_stuck();

  // core_sweep.cc
  void on(const NodeSweepRequested& event);
  absl::Status begin_sweep(const NodeSweepRequested& event, bool scheduled);
  void sweep_idle_nodes();
  void expire_sweep(const Tick& event);
  void leave_sweep(const WorkerName& name);
  void advance_sweep();
  void exclude_swept_nodes();
  void record_swept_nodes();
  std::string why_busy(const Worker& worker, const NodeUses& uses) const;

  // core_ladder.cc
  void on(const StacksRequested& event);
  void on(const StackReportReceived& event);
  void on(const SymbolsReceived& event);
  void climb(Job& job);
  void take_step(Job& job, LadderStep step);
  void conclude_dump(Job& job);
  void conclude_stuck(Job& job, const Dump& dump);
  void suspect_unreachable(Job& job);
  void stop_sampling();

  // core_reach.cc
  void check_reach(Job& job);
  void check_end(Job& job);
  void end_outage(const WorkerName& sender);
  void give_up_ranks_of(Job& job, const WorkerName& name, std::string_view why);
  bool end_if_cut(Job& job);

  CoreOptions options_;
  StoreId store_;
  Epoch left_at_;
  JobTable jobs_;
  JobQueue queue_;
  Dependents dependents_;
  std::optional<QueuePolicy> policy_;
  std::string policy_text_;  // as stored
  UsageTable usages_;
  Instant charged_at_{};       // the time up to which the usage of running jobs is added
  Instant usage_stored_at_{};  // the time at which the usage was last stored
  std::vector<JobId> ended_;   // in this step, until their dependents are released
  Fleet fleet_;
  NodeBook nodes_;
  IncidentBook incidents_;
  LedgerTable accounts_;
  PendingNodeChecks checks_;
  CheckHistory deep_checks_;
  std::optional<Sweep> sweep_;  // the newest one
  Instant next_idle_visit_{};   // the time of the next search for nodes to check
  DumpTable dumps_;
  AttemptTable attempts_;
  std::set<JobId> suspects_;  // jobs in SUSPECT
  bool schedule_needed_ = false;
  Instant last_pass_{};  // the time of the last queue pass
  // Jobs that were running when this coordinator started. Cleared by its first step.
  std::vector<JobId> restored_running_;

  // The time and the actions of the step in progress.
  CoreTime time_;
  ActionList actions_;
};

}  // namespace muster::coordinator
