// The workers: which are registered, which may get ranks, and how long each has been silent.
//
// Silence has degrees, because one late heartbeat shows little: quiet (two heartbeats are missing),
// unreachable (silence_max()), and lost (the lease has expired). Pure; called on one thread at a
// time.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <absl/status/status.h>

#include "common/ids.h"
#include "common/time.h"
#include "coordinator/core/action.h"
#include "coordinator/core/core_options.h"
#include "coordinator/core/event.h"
#include "coordinator/core/records/job.h"
#include "coordinator/core/records/worker.h"

namespace muster::coordinator {

// The ranks of one attempt by worker, in ascending order.
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
  // Returns the worker if this incarnation of it is connected; else null.
  Worker* current(const WorkerName& name, Incarnation incarnation);

  // Returns whether the registration is acceptable; the format of its fields is checked elsewhere.
  // `has_own_ranks`: it lists ranks of this coordinator's store. Such a worker may have another
  // version during an upgrade: its ranks may end there.
  absl::Status check_registration(const WorkerRegistered& event, bool has_own_ranks) const;
  // Adds or replaces the worker according to its registration. The caller updates orphans, missing
  // ranks and the check.
  Worker& add(const WorkerRegistered& event, Instant now);
  // After a restart: adds the workers on which `job` has ranks, each with one lease to register
  // again.
  void await_workers_of(const Job& job, Instant now);
  void erase(const WorkerName& name) { workers_.erase(name); }
  // Records a heartbeat. Returns whether the worker's ranks had been given up.
  bool observe_heartbeat(Worker& worker, Instant now);
  // Excludes coordinator downtime of `time` until `now`, in which no worker could report.
  void excuse(Duration time, Instant now);

  // Returns whether the state of the worker permits new ranks. Suspicions against its node are
  // checked elsewhere.
  bool takes_ranks(const Worker& worker) const;
  // Returns whether the worker may be available within seconds: it is disconnected, or its node is
  // being checked. A connected worker that gets no ranks (it is leaving, or has a stuck process) is
  // not away.
  bool is_away(const WorkerName& name) const;

  // At least two heartbeats are missing. A single missing one is normal.
  bool is_quiet(const Worker& worker, Instant now) const;
  // The time between two heartbeats of a worker with ranks.
  Duration heartbeat_interval() const;
  // Silence after which a worker is unreachable.
  Duration silence_max() const;
  // The same for this worker. A worker that is often late under load is allowed more time.
  Duration patience_with(const Worker& worker) const;
  // Returns whether the worker was silent for `time`. False for a worker from which this
  // coordinator has received nothing since its own start: it may be reconnecting, and the lease
  // decides.
  bool is_silent_for(const Worker& worker, Duration time, Instant now) const;
  bool is_unreachable(const Worker& worker, Instant now) const;
  // No worker is unreachable before.
  Instant reachable_until() const { return reachable_until_; }
  // The last message of the worker is recent enough to place ranks on it.
  bool is_responsive(const Worker& worker, Instant now) const;
  // Returns the workers whose lease has expired.
  std::vector<WorkerName> expired(Instant now) const;
  // Returns the end of the next lease, or the next time at which orphans are overdue.
  std::optional<Instant> next_deadline() const;

 private:
  CoreOptions options_;
  std::map<WorkerName, Worker> workers_;
  Instant reachable_until_{};
};

SendToWorker message_to(const Worker& worker, WorkerPayload payload);

// The orders to kill these ranks of `worker`, which belong to no current attempt.
std::vector<SendToWorker> orders_to_stop_orphans(const Worker& worker,
                                                 const std::set<RankId>& orphans);
// Returns whether SIGKILL waits for a save that makes progress: only the user waits for the end of
// a cancelled job, not another attempt.
bool waits_for_save(const Job& job, const CoreOptions& options);
// The orders to stop the job's ranks that have not ended, one for each worker, with the grace of
// the job.
std::vector<SendToWorker> orders_to_stop(const Job& job, const Fleet& fleet,
                                         const CoreOptions& options, std::string_view reason);

// The ranks of the job on this incarnation of `worker` that have not ended.
std::vector<Rank> awaited_ranks(const Job& job, const Worker& worker);
// Returns whether awaited_ranks() is not empty, in time proportional to the ranks of that worker.
bool has_ranks(const Job& job, const RanksByWorker& ranks, const Worker& worker);

// A rank of the job is on a worker that is disconnected, or has not reported it since it
// registered.
bool awaits_a_worker(const Job& job, const Fleet& fleet);

// A worker repeats unacknowledged reports before its first heartbeat on a connection. The second
// heartbeat covers one that was already in flight.
constexpr int32_t kHeartbeatsBeforeVerdict = 2;

}  // namespace muster::coordinator
