// What must hold after every step of the coordinator, whatever the network, the disk and the processes did.
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
  // The step's records are on the disk; nothing has been sent.
  void after_commit(const coordinator::Event& event);
  // A caller was told that its job exists.
  void promised(JobId job) { promised_.insert(job); }
  void forget_promises() {
    promised_.clear();
    newest_ = JobId(0);
    newest_incident_ = coordinator::IncidentId(0);
    judged_.clear();
  }

 private:
  void reload_equals_memory();
  void numbers_are_given_once();
  void no_slot_is_overbooked();
  void nobody_stays_where_a_worker_leaves(const coordinator::Job& job);
  void ranks_are_a_bijection(const coordinator::Job& job);
  void attempts_follow_each_other(const coordinator::Job& before, const coordinator::Job& job);
  void old_ranks_are_gone(const coordinator::Job& before);
  void ends_are_final_and_true(const coordinator::Job* before, const coordinator::Job& job);
  void states_follow_the_ladder(const coordinator::Job& before, const coordinator::Job& job);
  void incidents_are_true();
  void stale_news_are_inert(const coordinator::Event& event);

  World& world_;
  std::map<JobId, coordinator::Job> before_;
  std::set<JobId> promised_;
  JobId newest_{0};  // of all lives over this store
  coordinator::IncidentId newest_incident_{0};
  std::set<coordinator::IncidentId> judged_;
};

}  // namespace muster::simulation
