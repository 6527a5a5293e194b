// One simulated fleet: a coordinator, some workers, callers that submit and cancel jobs, and
// faults.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>

#include "coordinator/core/core.h"
#include "tests/simulation/fake_coordinator.h"
#include "tests/simulation/fake_network.h"
#include "tests/simulation/fake_worker.h"
#include "tests/simulation/invariants.h"
#include "tests/simulation/scheduler.h"
#include "tests/simulation/trainers.h"

namespace muster::simulation {

// The faults of a simulation.
enum class Faults {
  kAll,
  // outages of the coordinator's network, which end no attempt; the jobs have no faults
  kOutages,
};

class World {
 public:
  // `workers`: their number; 0: drawn from the seed. `kept`: the submissions and faults that
  // happen, numbered from 0 in the order of time; null: all.
  // `logs`: returns the end of the event log with a violation, which takes twice the time.
  explicit World(uint64_t seed, int workers = 0, const std::set<int>* kept = nullptr,
                 bool logs = false, Faults faults = Faults::kAll);

  // Runs the complete simulation. Returns "" if all invariants held; else the violation, with the
  // end of the event log.
  std::string run();

  // The members below are used by the parts of the simulation.
  bool is_logging() const { return logs_; }
  // Returns whether the runs of the coordinator are recorded and replayed: in every fourth seed, in
  // a run with a log, and in each seed of MUSTER_SIMULATION_SEEDS.
  bool is_replayed() const { return is_replayed_; }
  void note(std::string line);
  void fail(std::string problem);
  // The text is joined only for a violation: most of the checks are made thousands of times.
  template <class... Parts>
  void require(bool holds, const Parts&... problem) {
    if (!holds) fail(absl::StrCat(problem...));
  }
  // Sets the behaviour of the ranks of a job that was stored for the first time, before they start.
  void give_nature(JobId job, const JobSpec& spec);
  // Requires that outages have ended no attempt, if they are the only faults.
  void judge_outages();
  FakeWorker& worker(int host) { return *workers_[static_cast<size_t>(host)]; }

  const uint64_t seed;
  Random random;
  Random sweeps;  // for deep checks alone, so that they change nothing else
  Scheduler scheduler;
  bool faults_on = true;
  coordinator::CoreOptions core_options;
  FakeNetwork network;
  Trainers trainers;
  FakeCoordinator coordinator;
  Invariants invariants;
  // Launches whose ranks were stopped by a draining worker that had waited for its coordinator in
  // vain.
  std::set<std::pair<StoreId, worker::LaunchKey>> stopped_by_workers;

  struct Totals {
    int jobs = 0, succeeded = 0, failed = 0, cancelled = 0, attempts = 0, crashes = 0;
    int saved_on_request = 0, left_together = 0, cut_launches = 0;
    int hangs = 0, hangs_named = 0, slow_ranks = 0, incidents = 0;
    int sweeps = 0;
    int exclusions = 0, last_resorts = 0;  // last_resorts: number of attempts on an excluded node
    int smaller = 0, grown = 0, with_spares = 0;
    int64_t stale_events = 0;  // events of earlier incarnations of workers
    int64_t unread = 0;        // leases that continued, because the worker's messages were unread
    int unanswered = 0;        // streams that a worker replaced, because nothing was acknowledged
    int outages = 0;           // outages of the coordinator's network
    int stuck = 0;             // processes that could not be killed for a long time
    int updates = 0;           // revisions that were rolled in
    int rollbacks = 0;
    int planned = 0;           // attempts that were ended for an update or a drain
    int saved_as_planned = 0;  // those of them whose ranks have saved the last step and left
    int left_stuck = 0;        // attempts that came up while such a process of their job existed
  };
  const Totals& totals() const { return totals_; }
  void count_unanswered() { ++totals_.unanswered; }
  // The violated invariant, and the number of submissions and faults so far.
  const std::string& problem() const { return problem_; }
  int disturbances() const { return disturbances_; }

 private:
  void submit_later();
  void try_submit(const std::string& request_id, const JobSpec& spec);
  void plan_requests(JobId job);
  void plan_updates(JobId job);
  void draw_sizes(JobSpec& spec);
  void draw_queueing(JobSpec& spec);  // queueing.cc
  JobNature draw_nature(const JobSpec& spec);
  void fault_later();
  void sweep_later();
  void make_a_fault();
  void exclude_a_node(const WorkerName& name);
  void make_an_outage();
  bool run_until(Instant end);
  bool everything_ended() const;
  void judge_hangs();
  std::string replay_command() const;
  bool is_kept();

  std::vector<std::unique_ptr<FakeWorker>> workers_;
  std::deque<std::string> log_;
  std::string problem_;
  int submissions_left_ = 0;
  int submissions_open_ = 0;
  int next_request_ = 1;
  int next_config_ = 1;
  std::map<std::string, JobNature> natures_;  // by output folder
  std::set<std::string> answered_;            // request ids of confirmed submissions
  const std::set<int>* const kept_;
  const bool logs_;
  const bool is_replayed_;
  const Faults faults_;
  Instant outage_until_{};
  int disturbances_ = 0;
  Totals totals_;
  Instant calm_{};  // time at which the faults stop
};

}  // namespace muster::simulation
