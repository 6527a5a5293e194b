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
#include "coordinator/core/action.h"
#include "coordinator/core/event.h"
#include "coordinator/core/job.h"
#include "coordinator/core/job_queue.h"
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
      std::chrono::seconds(2);       // for the dead rank's report when only victims reported
  size_t queued_jobs_max = 10'000;   // a queue longer than this is a submission loop gone wrong
  size_t finished_jobs_max = 1'000;  // kept for people to look at; older ones are forgotten
  InputLimits limits;
};

// What a restarted coordinator knows: the durable state, read from storage before the first step.
struct DurableState {
  StoreId store;
  std::vector<Job> jobs;
  std::map<std::string, JobId> request_ids;
  JobId last_job_id{0};  // the newest that was given; the job may be forgotten
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

 private:
  // What is known of a live job beyond its record. Volatile: rebuilt after a restart.
  struct Launch {
    std::optional<Instant> start_deadline;    // while STARTING
    std::optional<Instant> victim_deadline;   // once a victim reported and no culprit did
    Duration stop_grace{};                    // of the newest StopRanks
    std::optional<int64_t> checkpoint_after;  // somebody waits for a checkpoint of more steps
  };

  // core.cc
  void on(const JobSubmitted& event);
  void on(const JobCancelRequested& event);
  void on(const JobCheckpointRequested& event);
  void on(const Tick& event);
  void forgive_own_stall(Instant now);
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
  void send_start(const Job& job, const Worker& worker);

  // launch.cc
  absl::Status ask_for_checkpoint(const Job& job);
  void rank_up(Job& job, Rank rank);
  void rank_gone(Job& job, Rank rank);
  void rank_exited(Job& job, RankExit exit, const WorkerName& worker);
  void preempt_ranks_of(const Worker& worker, Duration grace);
  void fault(Job& job, Fault fault, Duration grace);
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
  absl::Status admit(const WorkerRegistered& event) const;
  void compare_running(Worker& worker, const WorkerRegistered& event);
  std::vector<Rank> awaited_ranks(const Job& job, const Worker& worker) const;
  void judge_missing(Worker& worker);
  void lose_ranks(const WorkerName& worker, std::optional<Incarnation> survivor,
                  std::string_view why);
  void check_leases();
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
  JobQueue queue_;
  JobId last_job_id_{0};
  bool schedule_needed_ = false;

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
