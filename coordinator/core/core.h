// The coordinator's decisions: a deterministic state machine without clock, I/O, threads or
// callbacks.
//
//   shell: events ──▶ Core::step(event, now, out) ──▶ actions: persist, then send and reply
//
// step() is total: whatever the event says, it neither fails nor throws; events that are stale,
// unknown or contradictory are ignored, refused or answered with an error. Equal event sequences
// give equal action sequences. Single-threaded: the shell's one core thread calls everything here.
//
//   core.cc      events to methods, submission, cancellation, what a reload restores
//   schedule.cc  the queue's pass: which waiting jobs are placed
//   resize.cc    workers that are kept free for a job, and jobs that run on fewer nodes
//   launch.cc    one attempt of one job: ranks up, ranks gone, faults, the end
//   fleet.cc     workers: registration, leases, heartbeats, exit reports
//   watch.cc     what ranks' figures say: progress for the ladder, stragglers
//   ladder.cc    a job that may hang: suspicion and dump
//   verdict.cc   what a dump comes to, and what cannot be told yet
//   dumps.cc     dumps of stacks and their symbols, for the ladder and for people
//   reach.cc     workers that cannot be reached
//   nodes.cc     nodes that are left out, and their checks
//   stuck.cc     processes that cannot be killed
//   accounts.cc  where each job's time goes, and how it comes back from faults
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <absl/status/statusor.h>

#include "common/gpu.h"
#include "common/ids.h"
#include "common/time.h"
#include "coordinator/core/accounting/account_book.h"
#include "coordinator/core/accounting/recovery_times.h"
#include "coordinator/core/action.h"
#include "coordinator/core/core_options.h"
#include "coordinator/core/event.h"
#include "coordinator/core/fleet/exclusions.h"
#include "coordinator/core/incident/incidents.h"
#include "coordinator/core/launch.h"
#include "coordinator/core/placement/placement.h"
#include "coordinator/core/queue/job_queue.h"
#include "coordinator/core/queue/validation.h"
#include "coordinator/core/records/job.h"

namespace muster::coordinator {

// Names one rank of one launch.
struct RankKey {
  JobId job;
  Attempt attempt;
  Rank rank;

  friend auto operator<=>(const RankKey&, const RankKey&) = default;
};

struct Worker {
  WorkerName name;
  Incarnation incarnation;
  std::string host;
  std::string version;
  std::string rendezvous_address;
  PortRange program_ports;
  std::string switches;
  std::vector<Gpu> gpus;
  std::string no_gpus_because;  // a clause, where there are none and the worker knows why
  int32_t slots = 0;
  bool connected = false;
  bool leaving = false;  // was told to end: nothing is placed on it any more
  Instant last_heard{};

  // Ranks that should not be there and were told to stop: they hold slots until they are gone.
  std::set<RankKey> strays;
  std::optional<Instant> strays_since;  // told to stop, and heard since
  std::set<RankKey>
      stuck;  // of the strays: cannot be killed; nothing is placed here before they end
  // Ranks placed here that the last registration did not list, until they are reported or found
  // lost.
  std::set<RankKey> missing;
  int32_t heartbeats = 0;  // since the last registration; counts to kHeartbeatsBeforeVerdict

  Instant last_pages{};  // the newest heartbeat
  Duration
      longest_pause{};  // between two of them, lately: a node under load is late more than once
  std::optional<Instant> away_since;  // its stream broke
  bool given_up =
      false;  // ranks of it were taken for lost: it gets no others before it is heard of
  NodeCheckState check;
};

class Core {
 public:
  // After a restart, jobs that were live wait up to one lease for their workers to come back.
  Core(CoreOptions options, DurableState state, Instant now);

  void step(const Event& event, Instant now, ActionList& out);

  // When the shell must send the next Tick, if anything is waiting for time to pass. While anybody is waited for, never
  // later than one heartbeat interval after the last step: a longer gap tells that this coordinator itself stood still.
  std::optional<Instant> next_deadline() const;

  const std::map<JobId, Job>& jobs() const { return jobs_; }
  const std::map<WorkerName, Worker>& workers() const { return workers_; }
  const std::map<std::string, JobId>& request_ids() const { return request_ids_; }
  const std::map<WorkerName, NodeRecord>& nodes() const { return nodes_.records(); }
  const CoreOptions& options() const { return options_; }
  Account account_of(const Job& job, Instant now) const;
  // Slots, and GPUs that ranks have to themselves. What is held for jobs is included.
  NodeUses use_by_worker() const;
  NodeUses held_by_worker() const;
  // By rank, the largest `count_max` scores of Stragglers; empty before the first look.
  std::vector<std::pair<Rank, double>> straggler_scores(const Job& job, size_t count_max) const;

 private:
  // core.cc
  void on(const JobSubmitted& event);
  void on(const JobCancelRequested& event);
  void on(const JobCheckpointRequested& event);
  void on(const Tick& event);
  void forgive_own_stall(Instant now);
  void note_incident(const Incident& incident);
  void restore(Job job);
  void await_workers_of(const Job& job);
  void resume_backoffs();
  absl::StatusOr<Job*> active_job(JobId id);
  absl::Status check_output_is_free(const JobSpec& spec) const;
  void release_output(const Job& job);
  void note(Job& job, std::string reason);
  void changed(const Job& job);
  void send(const Worker& worker, WorkerPayload payload);
  void forget_oldest();

  // schedule.cc
  void schedule();
  NodeUses use_of_ranks() const;
  NodeUse use_of(const JobSpec& spec, const WorkerName& name) const;
  static Host host_of(const Worker& worker, const NodeUse& use);
  std::string without_gpus_text(const JobSpec& spec, const std::vector<Host>& hosts) const;
  std::string kept_text(const Job& job, const WorkerName& awaited) const;
  void start(Job& job, std::vector<RankPlacement> placement);
  int32_t free_program_port(const Job& job) const;
  void send_start(const Job& job, const Worker& worker);

  // resize.cc
  std::vector<JobQueue::Entry> in_turn() const;
  bool wants_workers_held(const Job& job) const;
  bool anybody_wants_workers() const;
  bool waits_for_all(const Job& job, const JobQueue::Entry& entry) const;
  bool is_away(const WorkerName& name) const;
  WorkerName node_to_wait_for(const Job& job, const JobQueue::Entry& entry) const;
  int32_t nodes_for(const Job& job) const;
  int32_t fewest_nodes(const Job& job) const;
  int32_t size_to_start(const Job& job, const std::vector<Host>& hosts) const;
  Placement find_place(const Job& job, bool whole, const std::vector<Host>& hosts,
                       const std::vector<Host>& left_out, std::string& remark);
  Wish wish_of(const Job& job) const;
  Placement place_among(const Job& job, bool whole, const std::vector<Host>& hosts,
                        const std::vector<Host>& left_out, std::string& remark);
  void keep_free(Job& job, std::vector<WorkerName> names, std::vector<Host>& hosts);
  void keep_own_nodes(Job& job, std::vector<Host>& hosts);
  void keep_more_nodes(Job& job, bool somebody_waits, std::vector<Host>& hosts);
  bool keeps_its_nodes(const Job& job) const;
  void grow_when_due(Job& job, int32_t larger);
  std::string start_text(const Job& job) const;

  // launch.cc
  absl::Status ask_for_checkpoint(const Job& job);
  void rank_up(Job& job, Rank rank);
  void rank_gone(Job& job, Rank rank);
  void rank_exited(Job& job, RankExit exit, const WorkerName& worker);
  void preempt_ranks_of(const Worker& worker, Duration grace, const std::string& why);
  void fault(Job& job, Fault fault, Duration grace, IncidentKind kind = IncidentKind::kRankDied);
  void record_fault(Job& job, IncidentKind kind);
  void complete_crash(const Job& job);
  void stop_ranks(Job& job, Duration grace, std::string_view reason);
  void settle(Job& job);
  void end_attempt(Job& job);
  Instant keep_until(const Job& job, Instant ready) const;
  void finish(Job& job, JobState state, int32_t exit_code, std::string reason);
  void conclude(Job& job);
  bool awaits_a_worker(const Job& job) const;
  void check_launch_deadlines();

  // fleet.cc
  void on(const WorkerRegistered& event);
  void on(const WorkerDisconnected& event);
  void on(const WorkerLeaving& event);
  void on(const HeartbeatReceived& event);
  void on(const RankExited& event);
  void hear_heartbeat(Worker& worker);
  absl::Status admit(const WorkerRegistered& event) const;
  // Whether something may be placed there, as far as it depends on the worker alone.
  bool takes_ranks(const Worker& worker) const;
  void compare_running(Worker& worker, const WorkerRegistered& event);
  std::vector<Rank> awaited_ranks(const Job& job, const Worker& worker) const;
  void judge_missing(Worker& worker);
  void lose_ranks(const WorkerName& worker, std::optional<Incarnation> survivor,
                  std::string_view why);
  void lose_ranks_of(Job& job, const WorkerName& worker, std::optional<Incarnation> survivor,
                     std::string_view why);
  void check_leases();

  // watch.cc
  void begin_watching(const Job& job);
  static void forget_rank(Launch& launch, Rank rank);
  void watch(const Job& job, const RankProgress& progress);
  void watch_evidence(const StackReportReceived& event);
  void look_for_stragglers(const Job& job);

  // ladder.cc
  void hear_pages_of(const Worker& worker);
  void climb(Job& job);
  void suspect(Job& job, std::string reason);
  void go_on(Job& job, std::string_view reason);
  void leave_ladder(Job& job);
  void resume_incidents(const Job& job);
  void close_incidents(const Job& job, const std::string& text);
  int64_t unix_ns_of(Instant then) const;
  void check_ladders();
  std::optional<Instant> ladder_deadline(const Job& job, const Launch& launch) const;

  // verdict.cc
  void conclude_dump(Job& job);
  void drop_reachable(Job& job);
  bool shows_progress(const Job& job, const Dump& dump) const;
  void look_again(Job& job, const Dump& dump, Motion motion);
  void open_doubt(const Job& job, const Dump& dump);
  void end_doubt_if_it_goes_on(Job& job);
  void end_doubt(const Job& job, std::string_view action, std::string text);
  void forget_launch(const Job& job);
  void conclude_stuck(Job& job, const Dump& dump);
  Blame judge(const Job& job, const Dump& dump, IncidentKind kind,
              std::optional<IncidentId>& incident);
  std::map<Rank, std::string> ranks_gone(const Job& job) const;

  // dumps.cc
  void on(const StacksRequested& event);
  void on(const StackReportReceived& event);
  void on(const SymbolsReceived& event);
  std::optional<DumpId> begin_dump(const Job& job, Rank only, const Looks& looks,
                                   std::optional<RequestToken> request);
  bool is_over(const OpenDump& open) const;
  void answer_request(const OpenDump& open);
  bool ask_for_symbols(const Dump& dump, OpenSymbols open);
  void end_symbols(DumpId id);
  void check_dumps();

  // nodes.cc
  void on(const NodeChecked& event);
  void on(const NodeExcludeRequested& event);
  void on(const NodeAdmitRequested& event);
  void suspect_node(const WorkerName& name, Suspicion suspicion, std::string reason);
  void blame_node(const Job& job);
  void blame_stuck_node(const Suspect& suspect, const Dump& dump);
  void welcome_node(Worker& worker, bool is_new_life);
  void check_node(Worker& worker);
  void conclude_check(Worker& worker, NodeCheckResult result);
  void check_nodes();
  std::optional<Instant> nodes_deadline() const;
  bool may_be_taken(const WorkerName& name) const;
  Placement place_as_last_resort(const Job& job, int32_t nodes, const std::vector<Host>& hosts,
                                 const std::vector<Host>& left_out, std::string& remark);

  // stuck.cc
  std::vector<RankKey> unkillable_ranks(const Job& job, const Worker& worker) const;
  void leave_stuck(Worker& worker, const std::vector<RankKey>& keys);
  bool is_silent(const Worker& worker) const;
  bool is_order_on_its_way(const Job& job) const;
  void check_stuck();
  void expect_ends(Launch& launch, Duration grace);
  std::string stuck_text(const Worker& worker) const;
  int64_t stuck_ranks_of(const Job& job) const;

  // reach.cc
  bool has_ranks(const Job& job, const Worker& worker) const;
  Duration news_within() const;
  Duration told_after() const;
  Duration patience_with(const Worker& worker) const;
  bool is_silent_for(const Worker& worker, Duration time) const;
  bool is_unreachable(const Worker& worker) const;
  bool has_place_elsewhere(const Job& job, size_t missing) const;
  Duration lost_after(const Job& job, size_t missing) const;
  bool may_be_confirmed(const Job& job, Duration before = Duration::zero()) const;
  Duration stacks_take() const;
  bool misses_a_worker(const Job& job, const WorkerName& other) const;
  void check_reach(Job& job);
  void check_ends();
  void check_end(Job& job);
  bool is_missed(const Job& job, const Worker& worker) const;
  std::string silence_text(const Worker& worker) const;
  void tell_unreachable(Job& job, const Worker& worker);
  void record_silence(const Job& job, const Worker& worker);
  void tell_reachable(Job& job, const WorkerName& name, std::string_view how);
  void lose_confirmed(Job& job);
  void give_up_ranks_of(Job& job, const WorkerName& name, std::string_view why);

  // accounts.cc
  void open_account(const Job& job);
  void account(Job& job, JobTurn turn);
  void account_progress(Job& job, const RankProgress& progress);
  Instant last_progress_of(const Job& job) const;
  void account_fault(Job& job, IncidentKind kind);
  Recovery* recovery_of(const Job& job);
  void begin_recovery(Job& job, IncidentKind kind, Instant last_progress);
  void follow_recovery(Job& job, const RankProgress& progress, AttemptWatch::News news);
  void end_recovery(Job& job, IncidentId interrupted_by);

  Worker* current_worker(const WorkerName& name, Incarnation incarnation);
  Job* live_job(JobId id, Attempt attempt);
  // The live job that placed `key` on this life of `worker`, if the rank has not ended.
  Job* owner_of(const RankKey& key, const Worker& worker);
  void revive(const RankKey& key, const Worker& worker);
  void stop_launches(const Worker& worker, const std::set<RankKey>& strays);
  std::vector<JobId> unfinished_jobs() const;
  void tell_job_ended(JobId job);

  CoreOptions options_;
  StoreId store_;
  std::map<JobId, Job> jobs_;
  std::map<WorkerName, Worker> workers_;  // ordered, so that decisions do not depend on addresses
  std::map<std::string, JobId> request_ids_;
  std::map<JobId, Launch> launches_;  // one for each live job
  AccountBook accounts_;
  std::set<std::pair<int64_t, JobId>> finished_;  // oldest end first
  // Of the jobs that have not ended. State of an earlier version may hold two of one folder.
  std::set<std::pair<std::string, JobId>> outputs_;
  std::map<DumpId, OpenDump> dumps_;
  std::map<DumpId, OpenSymbols> symbols_;
  DumpId last_dump_{0};
  IncidentBook incidents_;
  NodeBook nodes_;
  uint64_t last_check_ = 0;
  std::set<JobId> suspects_;  // jobs that are SUSPECT
  JobQueue queue_;
  JobId last_job_id_{0};
  bool schedule_needed_ = false;
  std::vector<JobId>
      looks_again_;  // running when this coordinator was started: until its first step
  std::vector<JobId> backed_off_;  // when it was: until the time of day is known
  Instant reach_from_{};           // no worker is unreachable before

  // Of the step in progress.
  Instant now_{};
  int64_t unix_ns_ = 0;
  ActionList actions_;
  std::set<JobId> persist_;
  std::set<JobId> changed_;
};

// A worker repeats what is not acknowledged before its first heartbeat on a connection; the second
// one leaves room for a heartbeat that was already on its way.
constexpr int32_t kHeartbeatsBeforeVerdict = 2;

}  // namespace muster::coordinator
