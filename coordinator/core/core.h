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
//   launch.cc    one attempt of one job: ranks up, ranks gone, faults, the end
//   fleet.cc     workers: registration, leases, heartbeats, exit reports
//   watch.cc     what ranks' figures say: progress for the ladder, stragglers
//   ladder.cc    a job that may hang: suspicion and dump
//   verdict.cc   what a dump comes to, and what cannot be told yet
//   dumps.cc     dumps of stacks and their symbols, for the ladder and for people
//   reach.cc     workers that cannot be reached
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

#include "common/ids.h"
#include "common/time.h"
#include "coordinator/core/action.h"
#include "coordinator/core/blame.h"
#include "coordinator/core/dump.h"
#include "coordinator/core/event.h"
#include "coordinator/core/hang_detector.h"
#include "coordinator/core/incidents.h"
#include "coordinator/core/job.h"
#include "coordinator/core/job_queue.h"
#include "coordinator/core/stragglers.h"
#include "coordinator/core/validation.h"

namespace muster::coordinator {

struct CoreOptions {
  std::string version;  // workers must say the same
  Duration heartbeat_interval = std::chrono::seconds(1);
  Duration worker_lease =
      std::chrono::seconds(10);  // silence after which a worker and its ranks are lost
  Duration start_budget =
      std::chrono::seconds(60);  // from StartRanks to the last rank's first heartbeat
  Duration cancel_grace =
      std::chrono::seconds(4);  // SIGTERM to SIGKILL: time to write a checkpoint
  Duration culprit_wait =
      std::chrono::seconds(2);  // for the dead rank's report when only victims reported
  // Silence of a worker with running ranks after which it is told to be unreachable; its ranks are lost when that is confirmed. More
  // than three heartbeats of a busy worker: less would be a hiccup of the network.
  Duration unreachable_after = std::chrono::milliseconds(900);
  Duration broken_stream_wait = std::chrono::milliseconds(
      500);  // the same of one whose stream broke, when peers of its ranks report them lost
  // The same before the others' stacks may confirm it: what its ranks have begun meanwhile, a checkpoint perhaps, nobody has heard.
  Duration unreachable_confirm = std::chrono::seconds(5);
  HangBudgets hang;
  Duration samples_apart = std::chrono::seconds(1);  // two looks at the stacks tell slow from stuck
  Duration sample_deadline = std::chrono::milliseconds(1500);
  Duration symbols_wait = std::chrono::seconds(5);
  size_t queued_jobs_max = 10'000;   // a queue longer than this is a submission loop gone wrong
  size_t finished_jobs_max = 1'000;  // kept for people to look at; older ones are forgotten
  InputLimits limits;
};

// What a restarted coordinator knows: the durable state, read from storage before the first step.
struct DurableState {
  StoreId store;
  std::vector<Job> jobs;
  std::map<std::string, JobId> request_ids;
  JobId last_job_id{0};                  // the newest that was given; the job may be forgotten
  std::vector<IncidentId> incidents;     // whose records are stored, growing; the newest never goes
  std::vector<Incident> open_incidents;  // those of them that are open
};

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
  int32_t slots = 0;
  bool connected = false;
  bool leaving = false;  // was told to end: nothing is placed on it any more
  Instant last_heard{};

  // Ranks that should not be there and were told to stop: they hold slots until they are gone.
  std::set<RankKey> strays;
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
  const CoreOptions& options() const { return options_; }
  std::map<WorkerName, int32_t> slots_used_by_worker() const;
  // By rank, the largest `count_max` scores of Stragglers; empty before the first look.
  std::vector<std::pair<Rank, double>> straggler_scores(const Job& job, size_t count_max) const;

 private:
  // Nobody can tell whether the attempt hangs: an incident says so, and the job runs. One incident for all doubts of an attempt.
  struct Doubt {
    IncidentId incident;
    bool open = false;
    Instant progress{};            // of steps and phases, when it began
    Instant began{};               // the look that could not tell
    std::optional<Instant> until;  // then it is stuck; nothing: it has moved since
    std::string reason;            // why nothing is done

    void excuse(Duration time) {
      progress += time;
      began += time;
      if (until) *until += time;
    }
  };
  // What is known of a live job beyond its record. Volatile: rebuilt after a restart.
  struct Launch {
    std::optional<Instant> start_deadline;          // while STARTING
    std::optional<Instant> victim_deadline;         // once a victim reported and no culprit did
    std::optional<int64_t> checkpoint_after;        // somebody waits for a checkpoint of more steps
    std::map<WorkerName, std::vector<Rank>> ranks;  // by worker
    std::optional<HangDetector> hang;
    std::optional<Stragglers> stragglers;
    std::map<Rank, IncidentId> slow;     // ranks that are told to be
    std::optional<Instant> reach_check;  // the next look at whether its workers can be reached
    std::optional<IncidentId> incident;  // what the suspicion or the verdict is recorded as
    std::optional<IncidentId> silence;   // the attempt's, of workers that could not be reached
    // While SUSPECT or DUMPING.
    Instant suspected{};
    Instant progress_then{};           // of steps and phases
    int64_t step_then = -1;            // the newest that was known
    std::set<WorkerName> no_news;      // workers whose pages have not been seen since
    std::set<WorkerName> unreachable;  // outlives a suspicion
    std::optional<DumpId> dump;
    int32_t looks = 0;                 // dumps of this suspicion that could not tell
    std::optional<Instant> next_look;  // no dump before
    std::optional<Doubt> doubt;        // outlives a suspicion
  };
  // One dump on its way.
  struct OpenDump {
    Dump dump;
    Instant deadline;
    std::optional<RequestToken> request;  // who asked; nobody: the ladder
  };
  // Names that are awaited, for an incident or for somebody who wants to see stacks.
  struct OpenSymbols {
    IncidentId incident;  // whose stacks are input.later's …
    BlameInput input;
    std::optional<RequestToken> request;  // … or whose answer waits
    StackDump answer;
    std::set<StackModule> modules;
    Instant deadline;

    StackTree& stacks() { return request ? answer.stacks : input.later.stacks; }
  };

  // core.cc
  void on(const JobSubmitted& event);
  void on(const JobCancelRequested& event);
  void on(const JobCheckpointRequested& event);
  void on(const Tick& event);
  void forgive_own_stall(Instant now);
  void note_incident(const Incident& incident);
  void restore(Job job);
  void await_workers_of(const Job& job);
  absl::StatusOr<Job*> active_job(JobId id);
  absl::Status check_output_is_free(const JobSpec& spec) const;
  void release_output(const Job& job);
  void note(Job& job, std::string reason);
  void changed(const Job& job);
  void send(const Worker& worker, WorkerPayload payload);
  void forget_oldest();

  // schedule.cc
  void schedule();
  void start(Job& job, std::vector<RankPlacement> placement);
  int32_t free_program_port(const Job& job) const;
  void send_start(const Job& job, const Worker& worker);

  // launch.cc
  absl::Status ask_for_checkpoint(const Job& job);
  void rank_up(Job& job, Rank rank);
  void rank_gone(Job& job, Rank rank);
  void rank_exited(Job& job, RankExit exit, const WorkerName& worker);
  void preempt_ranks_of(const Worker& worker, Duration grace);
  void fault(Job& job, Fault fault, Duration grace, IncidentKind kind = IncidentKind::kRankDied);
  void record_fault(Job& job, IncidentKind kind);
  void stop_ranks(Job& job, Duration grace, std::string_view reason);
  void settle(Job& job);
  void end_attempt(Job& job);
  void finish(Job& job, JobState state, int32_t exit_code, std::string reason);
  void conclude_without_culprit(Job& job);
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
  std::optional<DumpId> begin_dump(const Job& job, Rank only, int32_t samples,
                                   std::optional<RequestToken> request);
  bool is_over(const OpenDump& open) const;
  void answer_request(const OpenDump& open);
  bool ask_for_symbols(const Dump& dump, OpenSymbols open);
  void end_symbols(DumpId id);
  void check_dumps();

  // reach.cc
  bool has_ranks(const Job& job, const Worker& worker) const;
  Duration patience_with(const Worker& worker) const;
  bool is_unreachable(const Worker& worker) const;
  bool may_be_confirmed(const Launch& launch) const;
  void check_reach(Job& job);
  bool is_missed(const Job& job, const Worker& worker) const;
  void tell_unreachable(Job& job, const Worker& worker);
  IncidentId open_silence(const Job& job, const Fault& what);
  void tell_reachable(Job& job, const WorkerName& name, std::string_view how);
  void lose_confirmed(Job& job);
  void give_up_ranks_of(Job& job, const WorkerName& name, std::string_view why);

  Worker* current_worker(const WorkerName& name, Incarnation incarnation);
  Job* live_job(JobId id, Attempt attempt);
  // The live job that placed `key` on this life of `worker`, if the rank has not ended.
  Job* owner_of(const RankKey& key, const Worker& worker);
  void revive(const RankKey& key, const Worker& worker);
  void stop_launches(const Worker& worker, const std::set<RankKey>& strays);

  CoreOptions options_;
  StoreId store_;
  std::map<JobId, Job> jobs_;
  std::map<WorkerName, Worker> workers_;  // ordered, so that decisions do not depend on addresses
  std::map<std::string, JobId> request_ids_;
  std::map<JobId, Launch> launches_;              // one for each live job
  std::set<std::pair<int64_t, JobId>> finished_;  // oldest end first
  // Of the jobs that have not ended. State of an earlier version may hold two of one folder.
  std::set<std::pair<std::string, JobId>> outputs_;
  std::map<DumpId, OpenDump> dumps_;
  std::map<DumpId, OpenSymbols> symbols_;
  DumpId last_dump_{0};
  IncidentBook incidents_;
  std::set<JobId> suspects_;  // jobs that are SUSPECT
  JobQueue queue_;
  JobId last_job_id_{0};
  bool schedule_needed_ = false;
  std::vector<JobId>
      looks_again_;       // running when this coordinator was started: until its first step
  Instant reach_from_{};  // no worker is unreachable before

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
