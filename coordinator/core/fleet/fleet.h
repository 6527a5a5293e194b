// The workers: who is registered, who may get ranks, and how long each has been silent.
//
// Silence has degrees, because a late heartbeat says little: quiet (two heartbeats are missing),
// unreachable (silence_max()), and lost (the lease has run out). Pure; one thread at a time.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/status.h>

#include "common/ids.h"
#include "common/time.h"
#include "coordinator/core/core_options.h"
#include "coordinator/core/event.h"
#include "coordinator/core/records/job.h"
#include "coordinator/core/records/worker.h"

namespace muster::coordinator {

// The ranks of one attempt by worker, in their order.
using RanksByWorker = std::map<WorkerName, std::vector<Rank>>;

class Fleet {
 public:
  explicit Fleet(const CoreOptions& options) : options_(options) {}

  // Ordered, so that decisions do not depend on addresses.
  const std::map<WorkerName, Worker>& all() const { return workers_; }
  std::map<WorkerName, Worker>& all() { return workers_; }
  // Requires that the worker is known.
  Worker& at(const WorkerName& name) { return workers_.at(name); }
  const Worker& at(const WorkerName& name) const { return workers_.at(name); }
  // Null: there is no such worker.
  Worker* find(const WorkerName& name);
  const Worker* find(const WorkerName& name) const;
  // The worker, if this incarnation of it is connected; else null.
  Worker* current(const WorkerName& name, Incarnation incarnation);

  // Whether the registration is acceptable, apart from the form of its fields. `has_own_ranks`: it
  // lists ranks of this coordinator's store. Such a worker may have another version, in the middle
  // of an upgrade: what it runs may end there.
  absl::Status check_registration(const WorkerRegistered& event, bool has_own_ranks) const;
  // Adds or replaces the worker by what its registration says. Orphans, missing ranks and the check
  // are the caller's.
  Worker& add(const WorkerRegistered& event, Instant now);
  // After a restart: waits one lease for the workers on which `job` has ranks.
  void await_workers_of(const Job& job, Instant now);
  void erase(const WorkerName& name) { workers_.erase(name); }
  // Notes a heartbeat. True: the worker's ranks had been given up before.
  bool observe_heartbeat(Worker& worker, Instant now);
  // The coordinator itself stood still for `time` until `now`: no worker could report.
  void excuse(Duration time, Instant now);

  // The worker alone permits new ranks. What is known against its node is not part of this.
  bool takes_ranks(const Worker& worker) const;
  // The worker may be back within seconds: it is disconnected, or its node is being checked. A
  // connected worker that gets no ranks (it leaves, or has a stuck process) is not away.
  bool is_away(const WorkerName& name) const;

  // Two heartbeats are missing. Fewer are a hiccup.
  bool is_quiet(const Worker& worker, Instant now) const;
  // The time between two heartbeats of a worker with ranks.
  Duration heartbeat_interval() const;
  // Silence after which a worker is unreachable.
  Duration silence_max() const;
  // The same for this worker: one that is often late under load is given longer.
  Duration patience_with(const Worker& worker) const;
  // Silent for `time`. Never of a worker that this coordinator has received nothing from since its
  // start: that one is on its way, and the lease decides.
  bool is_silent_for(const Worker& worker, Duration time, Instant now) const;
  bool is_unreachable(const Worker& worker, Instant now) const;
  // No worker is unreachable before.
  Instant reachable_until() const { return reachable_until_; }
  // Its last message is recent enough to be a place for ranks.
  bool is_responsive(const Worker& worker, Instant now) const;
  // Workers whose lease has run out.
  std::vector<WorkerName> expired(Instant now) const;
  // The next lease, or the next time at which orphans are overdue.
  std::optional<Instant> next_deadline() const;

 private:
  CoreOptions options_;
  std::map<WorkerName, Worker> workers_;
  Instant reachable_until_{};
};

// The ranks of the job on this incarnation of `worker` that have not ended.
std::vector<Rank> awaited_ranks(const Job& job, const Worker& worker);
// Whether there is any. Costs the ranks of that worker alone.
bool has_ranks(const Job& job, const RanksByWorker& ranks, const Worker& worker);

// A rank of the job is on a worker that is disconnected, or has not reported it since it
// registered.
bool awaits_a_worker(const Job& job, const Fleet& fleet);

// A worker repeats what is not acknowledged before its first heartbeat on a connection; the second
// one leaves room for a heartbeat that was already on its way.
constexpr int32_t kHeartbeatsBeforeVerdict = 2;

}  // namespace muster::coordinator
