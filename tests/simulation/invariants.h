// Checks invariants after every step of the coordinator, under any faults of the network, the disk
// and the processes.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>

#include "coordinator/core/core.h"

namespace muster::simulation {

class World;

class Invariants {
 public:
  explicit Invariants(World& world) : world_(world) {}

  void before_step(const coordinator::Core& core, const coordinator::Event& event);
  // Call when the step's records are on the disk and nothing has been sent.
  void after_commit(const coordinator::Event& event);
  int last_resorts() const { return last_resorts_; }
  // Records that a caller received confirmation of its job.
  void promised(JobId job) { promised_.insert(job); }
  // Returns whether the attempt was ended to grow to more nodes, whatever its ranks were doing.
  bool has_grown(const std::pair<JobId, Attempt>& attempt) const {
    return grown_.contains(attempt);
  }
  int smaller_attempts() const { return smaller_attempts_; }
  int attempts_on_spares() const { return attempts_on_spares_; }
  void forget_promises() {
    promised_.clear();
    newest_ = JobId(0);
    newest_incident_ = coordinator::IncidentId(0);
    judged_.clear();
    started_.clear();
    grown_.clear();
  }

 private:
  void reload_equals_memory();
  void numbers_are_given_once();
  void no_slot_is_overbooked();
  void nobody_stays_where_a_worker_leaves(const coordinator::Job& job);
  void nothing_is_placed_on_the_excluded(const coordinator::Job& job);
  void ranks_are_a_bijection(const coordinator::Job& job);
  void nodes_are_kept(const coordinator::Job& before, const coordinator::Job& job);
  void held_workers_are_wanted(const coordinator::Job& job);
  void attempts_follow_each_other(const coordinator::Job& before, const coordinator::Job& job);
  void old_ranks_are_gone(const coordinator::Job& before);
  void ends_are_final_and_true(const coordinator::Job* before, const coordinator::Job& job);
  void states_follow_the_ladder(const coordinator::Job& before, const coordinator::Job& job);
  void incidents_are_true();
  void accounts_add_up();
  void stale_news_are_inert(const coordinator::Event& event);

  World& world_;
  std::map<JobId, coordinator::Job> before_;
  std::set<JobId> promised_;
  int last_resorts_ = 0;
  JobId newest_{0};  // the newest job of all runs over this store
  std::set<std::pair<JobId, Attempt>> grown_;
  int smaller_attempts_ = 0;
  int attempts_on_spares_ = 0;
  coordinator::IncidentId newest_incident_{0};
  std::set<coordinator::IncidentId> judged_;
  std::map<JobId, Instant> started_;  // the time of each job's first start
};

}  // namespace muster::simulation
