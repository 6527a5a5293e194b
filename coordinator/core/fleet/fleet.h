// The coordinator's workers: which workers are registered, which may get ranks, and how long each
// has been silent.
//
// Silence has degrees, because one late heartbeat shows little: quiet (two heartbeats are missing),
// unreachable (silence_max()), and lost (the lease has expired).
//
// If most workers are silent at once, the network of the coordinator is probably away, and not that
// of each worker. During such an outage the leases are longer, because the ranks continue without
// the coordinator, and the silence of a worker is no evidence against its ranks. After the outage
// the leases start again. Pure; called on one thread at a time.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <absl/status/status.h>

#include "common/job/ids.h"
#include "common/job/limits.h"
#include "common/time/time.h"
#include "coordinator/core/action.h"
#include "coordinator/core/core_options.h"
#include "coordinator/core/event.h"
#include "coordinator/core/fleet/pace.h"
#include "coordinator/core/records/job.h"
#include "coordinator/core/records/node_place.h"
#include "coordinator/core/records/worker.h"

namespace muster::coordinator {

// The ranks of one attempt by worker, in ascending order.
using RanksByWorker = std::map<WorkerName, std::vector<Rank>>;

// The maximum number of consecutive extensions of a lease for unread messages, and of consecutive
// leases after outages.
constexpr int32_t kPostponementsMax = 10;

// Number of leases after which workers that are silent together count as lost while others report,
// and also the only worker of a fleet: the power or the switch of these nodes may have failed.
constexpr int64_t kLeasesOfMost = 3;
// The same if no worker of several reports. The wait costs nothing, because no rank could start
// elsewhere, and a switch needs some minutes to restart.
constexpr int64_t kLeasesOfAll = 60;

// The time after a restart of the coordinator in which workers of an earlier version are expected
// to be upgraded. A large job retains its claim that long. Afterwards the rest of the fleet serves
// other jobs, because ranks on such workers may run for weeks.
constexpr Duration kUpgradeTime = std::chrono::hours(4);

// Twice the workers of the largest fleet.
constexpr size_t kAbsentMax = size_t{2} * kNodesMax;

class Fleet {
 public:
  explicit Fleet(const CoreOptions& options)
      : options_(options), pace_(pace_of(0, options)), allowed_(pace_) {}

  // Return all workers by name. The order is fixed, so that decisions do not depend on addresses.
  const std::map<WorkerName, Worker>& all() const { return workers_; }
  std::map<WorkerName, Worker>& all() { return workers_; }
  // Requires that the worker is known.
  Worker& at(const WorkerName& name) { return workers_.at(name); }
  const Worker& at(const WorkerName& name) const { return workers_.at(name); }
  // Return the worker; null if there is no such worker.
  Worker* find(const WorkerName& name);
  const Worker* find(const WorkerName& name) const;
  // Returns the worker if this incarnation of the worker is connected; otherwise null.
  Worker* current(const WorkerName& name, Incarnation incarnation);
  // Returns current(). Unless that is null, also records that a message of the worker has arrived.
  Worker* receive(const WorkerName& name, Incarnation incarnation, Instant now);

  // Returns an error if the registration is not acceptable; the format of its fields is checked
  // elsewhere. `has_own_ranks`: the registration lists ranks of this coordinator's store. Such a
  // worker may have another version, so that its ranks can end during an upgrade.
  // A worker of the same name is replaced at once if its process has ended. Its stream shows that,
  // and so does a registration from the same machine while it is silent. A registration from
  // another machine shows nothing: the silent worker and its ranks may run there.
  absl::Status check_registration(const WorkerRegistered& event, bool has_own_ranks,
                                  Instant now) const;
  // Adds or replaces the worker according to its registration. The caller updates orphans, missing
  // ranks and the check.
  Worker& add(const WorkerRegistered& event, Instant now);
  // Adds the workers on which `job` has ranks, after a coordinator restart. Each worker has one
  // lease to register again.
  void await_workers_of(const Job& job, Instant now);
  // Adapts the pace to the number of awaited workers, and extends their leases by
  // time_to_register(). Called once, after all await_workers_of(). `has_had_jobs`: whether this is
  // a restart, after which any number of workers may have to register again.
  void begin_waiting(bool has_had_jobs, Instant now);
  // Returns whether workers may have to register again after a coordinator restart.
  bool is_registering(Instant now) const { return now < registering_until_; }
  // Adapts the pace to the size of the fleet. Returns whether it has changed, in which case the
  // caller sends it to all connected workers.
  bool adapt_pace(Instant now);
  // Returns the pace that workers have, or will have once they receive it.
  const Pace& pace() const { return pace_; }
  // Returns the workers that were erased and have not registered since; at most kAbsentMax, of
  // which the oldest are forgotten.
  const std::map<WorkerName, Worker>& absent() const { return absent_; }
  // Returns the place of the worker in the network, also after erase(), until the worker registers
  // with another one; null if it is unknown.
  const NodePlace* place_of(const WorkerName& name) const;
  // An outage ends with its last worker.
  void erase(const WorkerName& name);
  // Records a heartbeat. Returns whether the worker's ranks had been given up.
  bool observe_heartbeat(Worker& worker, Instant now);
  // Excludes coordinator downtime of `time` that ended at `now`, because no worker could report
  // during it.
  void excuse(Duration time, Instant now);

  // Extends the worker's lease by a heartbeat interval: a message of the worker was not read yet.
  // Does nothing after kPostponementsMax extensions without a message in between: a part of a
  // message may remain in a connection whose worker is dead.
  void postpone(const WorkerName& name, Instant now);
  // Counts no further worker as unreachable before it had time to report, because messages of many
  // workers were not read yet.
  void judge_no_silence(Instant now) { reachable_until_ = now + silence_max(); }

  // Detects the beginning of an outage: most workers are silent. While other workers report,
  // workers whose streams broke before they were silent do not count, because their hosts had a
  // network. If no worker reports, a proxy of the coordinator may have closed the streams. The end
  // of the only stream of a fleet is no outage. Called at each event; visits the workers at most
  // twice per heartbeat interval.
  void watch_outage(Instant now);
  // Returns whether no worker reports.
  bool is_cut_off() const { return outage_ && outage_->is_total; }
  // Records that a message of `sender` has arrived, before the message is processed. If it ends an
  // outage, the leases of the other silent workers start again, at most kPostponementsMax times
  // without a message in between. Returns the time in which no worker could report, which the
  // caller excludes from its deadlines; zero if there was none.
  Duration end_outage(const WorkerName& sender, Instant now);
  // Records that a worker that may take another's name later has registered. While no worker
  // reports, this shows that the network is back, so the leases are as long as if others reported.
  void record_refusal(Instant now);
  // Returns the end of the worker's lease.
  Instant lease_end(const Worker& worker) const { return lease_end(worker, lease()); }
  // Returns the time from which the silence of the worker may be evidence against its ranks: the
  // end of its lease if it is silent since an outage, else the start of the clock.
  Instant judged_from(const Worker& worker) const;

  // Returns whether the state of the worker permits new ranks. Suspicions against its node are
  // checked elsewhere.
  bool takes_ranks(const Worker& worker) const;
  // Returns whether the worker may be available within seconds, because it is disconnected or its
  // node is being checked. A connected worker that gets no ranks, because it is leaving or has a
  // stuck process, is not away.
  bool is_away(const WorkerName& name) const;

  // Returns whether the worker has another version than the coordinator, whose restart began an
  // upgrade at most kUpgradeTime ago: the worker may be upgraded soon.
  bool awaits_upgrade(const Worker& worker, Instant now) const;

  // Returns whether at least two heartbeats of the worker are missing. One missing heartbeat is
  // normal.
  bool is_quiet(const Worker& worker, Instant now) const;
  // Returns the longest time between two heartbeats of a worker with ranks.
  Duration heartbeat_interval() const { return allowed_.busy; }
  // Returns the silence after which a worker is lost.
  Duration lease() const { return allowed_.lease; }
  // Returns the silence after which a worker is unreachable.
  Duration silence_max() const;
  // Returns silence_max(), or more for a worker that is often late under load.
  Duration patience_with(const Worker& worker) const;
  // Returns whether the worker was silent for `time`. Returns false if this coordinator has
  // received nothing from the worker since the coordinator started: the worker may be reconnecting,
  // and its lease decides.
  bool is_silent_for(const Worker& worker, Duration time, Instant now) const;
  // Returns whether the worker has been silent for silence_max(); see is_silent_for().
  bool is_unreachable(const Worker& worker, Instant now) const;
  // Returns the time before which no worker counts as unreachable.
  Instant reachable_until() const { return reachable_until_; }
  // Returns whether workers have been excused so recently that even those that were unreachable are
  // judged from the beginning.
  bool is_excused(Instant now) const { return now < excused_until_; }
  // Returns whether the worker's last message is recent enough to place ranks on it.
  bool is_responsive(const Worker& worker, Instant now) const;
  // Returns the connected workers whose lease has expired. Visits the workers only if
  // next_deadline() has passed.
  std::vector<WorkerName> expiring(Instant now) const;
  // Returns the workers whose lease has expired. Visits the workers only if next_deadline() has
  // passed, and then moves it.
  std::vector<WorkerName> take_expired(Instant now);
  // Visits the workers at `time` at the latest.
  void visit_by(Instant time);
  // Returns a time before which no lease ends and no orphan is overdue. Takes constant time,
  // because the shell calls it in each iteration; the deadlines themselves move with each message.
  std::optional<Instant> next_deadline() const { return next_visit_; }

 private:
  // Most workers are silent.
  struct Outage {
    bool is_total = false;  // no worker reports
    Instant since{};        // the newest message of all workers
    int64_t leases = 1;     // the length of the silent workers' leases in usual leases

    friend bool operator==(const Outage&, const Outage&) = default;
  };

  void forget_oldest_absent();
  Instant lease_end(const Worker& worker, Duration lease) const;
  // Returns whether the worker's stream broke while its host had a network: the worker was killed,
  // or its stream was reset.
  bool has_left(const Worker& worker) const;

  CoreOptions options_;
  Pace pace_;
  // The pace by which workers are judged: pace_, or the longer one of before until all workers have
  // received pace_.
  Pace allowed_;
  Instant allowed_until_{};
  std::map<WorkerName, Worker> workers_;
  std::map<WorkerName, Worker> absent_;
  Instant registering_until_{};
  Instant upgrading_until_{};
  // Set while there are workers. A deadline that begins after the last visit ends after this time.
  std::optional<Instant> next_visit_;
  Instant reachable_until_{};
  Instant excused_until_{};  // as reachable_until_, by excuse() alone
  std::optional<Outage> outage_;
  Instant next_outage_check_{};
  std::optional<Instant> refused_at_;  // the first record_refusal() of this outage
};

// Returns the action that sends `payload` to this incarnation of the worker.
SendToWorker send_action(const Worker& worker, WorkerPayload payload);

// Returns the orders to kill these ranks of `worker`, which belong to no current attempt.
std::vector<SendToWorker> orders_to_stop_orphans(const Worker& worker,
                                                 const std::set<RankId>& orphans);
// Returns whether SIGKILL waits for a save that makes progress. SIGKILL waits only in a cancelled
// job, because no further attempt waits for the end of its ranks.
bool waits_for_save(const Job& job, const CoreOptions& options);
// Returns the orders to stop the job's ranks that have not ended: one order for each worker, with
// the job's grace. `ranks`: the job's ranks.
std::vector<SendToWorker> orders_to_stop(const Job& job, const RanksByWorker& ranks,
                                         const Fleet& fleet, const CoreOptions& options,
                                         std::string_view reason);

// Returns the ranks of the job on this incarnation of `worker` that have not ended. `ranks`: the
// job's ranks. Takes time proportional to the ranks of that worker.
std::vector<Rank> awaited_ranks(const Job& job, const RanksByWorker& ranks, const Worker& worker);
// Returns whether awaited_ranks() is not empty.
bool has_ranks(const Job& job, const RanksByWorker& ranks, const Worker& worker);

// Returns whether a rank of the job is on a worker that is disconnected, or that has not reported
// the rank since it registered.
bool awaits_a_worker(const Job& job, const RanksByWorker& ranks, const Fleet& fleet);

// The heartbeats on a new connection after which an unreported rank is lost. A worker repeats
// unacknowledged reports before its first heartbeat. The second heartbeat is required because the
// first one may have been in flight before the reports.
constexpr int32_t kHeartbeatsBeforeVerdict = 2;

}  // namespace muster::coordinator
