// Checks invariants after every step of the coordinator. They must hold under all faults of the
// network, the disk and the processes.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>

#include "coordinator/core/core.h"
#include "worker/core/rank.h"

namespace muster::simulation {

class World;

class Invariants {
 public:
  explicit Invariants(World& world) : world_(world) {}

  // Call this when a run of the coordinator begins.
  void begin(const coordinator::Core& core) {
    before_ = core.jobs();
    forget_unstored_revisions();
    last_event_at_.reset();
    lease_ = core.pace().lease;
    ordered_.clear();
  }
  // Call this before each event that the core takes.
  void before_call(const coordinator::Event& event);
  // Call this after each call of the core. `event`: null for a queue pass. Heartbeats and ticks
  // without an action change nothing that is checked here, unless an earlier incarnation sent them.
  void after_call(const coordinator::Event* event, const coordinator::ActionList& actions);
  // Checks the stored state. Call it when the records of an iteration are on the disk and no
  // message has been sent. `is_idle`: the iteration had no action. An iteration that only sends
  // messages is checked, too, because a message may depend on a decision that was not stored.
  void after_commit(bool is_idle);
  // Requires that the processes of each node fit into its slots and GPUs, and that no two attempts
  // of a job run on one node. Call it after the start of each process.
  void processes_fit();
  // Returns whether the event is from an earlier incarnation of a worker. A registration is not: it
  // begins a new incarnation.
  bool is_stale(const coordinator::Event& event) const;
  int last_resorts() const { return last_resorts_; }
  // Records that a caller received the confirmation of its job. Requires that all confirmations of
  // one request name the same job.
  void note_confirmed(JobId job, const std::string& request_id);
  // Returns whether the attempt was ended so that the job could grow.
  bool has_grown(const std::pair<JobId, Attempt>& attempt) const {
    return grown_.contains(attempt);
  }
  int smaller_attempts() const { return smaller_attempts_; }
  int attempts_on_spares() const { return attempts_on_spares_; }
  int updates() const { return updates_; }
  int rollbacks() const { return static_cast<int>(failed_.size()); }
  int planned() const { return planned_; }
  int saved_as_planned() const { return saved_as_planned_; }
  // Requires that all ranks of a launch have the same config. Call it for each start of a process.
  void note_spawn(StoreId store, const worker::LaunchKey& launch, const std::string& config);
  void forget_store() {
    confirmed_.clear();
    confirmed_requests_.clear();
    stored_.clear();
    newest_ = JobId(0);
    newest_incident_ = coordinator::IncidentId(0);
    judged_.clear();
    started_.clear();
    grown_.clear();
    drains_.clear();
    specs_.clear();
    leaving_since_.clear();
  }

 private:
  void check_job(const coordinator::Job* was, const coordinator::Job& job);
  void reload_equals_memory();
  void job_numbers_are_unique();
  void no_slot_is_overbooked();
  void no_rank_stays_on_a_leaving_worker(const coordinator::Job& job);
  void no_rank_is_placed_on_an_excluded_node(const coordinator::Job& job);
  void ranks_are_a_bijection(const coordinator::Job& job);
  void present_nodes_keep_their_ranks(const coordinator::Job& before, const coordinator::Job& job);
  void reserved_workers_are_needed(const coordinator::Job* was, const coordinator::Job& job);
  // queueing.cc
  void starts_are_permitted(const coordinator::Job* was, const coordinator::Job& job);
  void time_limits_end_jobs(const coordinator::Event* event);
  void excluded_nodes_await_a_check();
  void drained_nodes_are_left(const coordinator::Event* event);
  void drains_order_once(const coordinator::Job* was, const coordinator::Job& job);
  // Forgets revisions and rollbacks that the coordinator had decided, but not stored, before it
  // crashed.
  void forget_unstored_revisions();
  void revisions_change_between_attempts(const coordinator::Job* was, const coordinator::Job& job);
  void accepted_updates_are_kept(const coordinator::Job* was, const coordinator::Job& job);
  void planned_leaves_repeat_no_step(const coordinator::Job* was, const coordinator::Job& job);
  void attempts_are_consecutive(const coordinator::Job& before, const coordinator::Job& job);
  void old_ranks_are_gone(const coordinator::Job& before);
  void outcomes_are_final_and_correct(const coordinator::Job* before, const coordinator::Job& job);
  void states_follow_the_ladder(const coordinator::Job& before, const coordinator::Job& job);
  void incidents_are_correct();
  void accounts_add_up();
  void stale_events_change_nothing(const coordinator::Event& event,
                                   const coordinator::ActionList& actions);
  void stale_exits_change_nothing(const coordinator::RankExited& exit);

  World& world_;
  // Each job as of the last call that had an action about it.
  std::map<JobId, coordinator::Job> before_;
  // The sender of a stale event, before the core took the event.
  std::optional<coordinator::Worker> sender_before_;
  Duration lease_{};                      // the lease of workers before the core's last event
  std::optional<Instant> last_event_at_;  // the time of the core's last event
  uint64_t commits_ = 0;
  std::set<JobId> confirmed_;
  std::map<std::string, JobId> confirmed_requests_;
  int last_resorts_ = 0;
  std::set<JobId> stored_;
  JobId newest_{0};  // the highest job number of all runs over this store
  std::set<std::pair<JobId, Attempt>> grown_;
  int smaller_attempts_ = 0;
  int attempts_on_spares_ = 0;
  coordinator::IncidentId newest_incident_{0};
  std::set<coordinator::IncidentId> judged_;
  std::map<JobId, Instant> started_;  // the time of each job's first start
  // The time of the newest drain of each node, until the node's exclusion ends.
  std::map<WorkerName, int64_t> drains_;
  // The spec of each revision, and the revisions that were rolled back.
  std::map<std::pair<JobId, int32_t>, JobSpec> specs_;
  std::set<std::tuple<StoreId, JobId, int32_t>> failed_;
  std::map<std::pair<StoreId, worker::LaunchKey>, std::string> configs_;
  // The time at which the current attempt of a job was ordered to leave for an update or a drain.
  std::map<JobId, Instant> leaving_since_;
  int updates_ = 0;
  int planned_ = 0;
  int saved_as_planned_ = 0;
  // The orders to leave for drains in this run of the coordinator.
  std::set<std::tuple<JobId, WorkerName, int64_t>> ordered_;
};

}  // namespace muster::simulation
