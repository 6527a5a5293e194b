// Workers of a job that cannot be reached: killed, lost with their host, disconnected, or too busy
// to respond in time.
//
// Silence alone shows little, because ranks run without the coordinator. There are three stages,
// and only the last one stops anything:
//
//   unreachable_after    if the job makes no progress either, it becomes SUSPECT, and its reason
//                        names the worker
//   unreachable_confirm  an incident is opened; most silences end earlier. For a worker that is
//                        often late, this stage begins after twice its longest pause
//   afterwards           the worker's ranks are lost when a second witness confirms the loss: peers
//                        that report it, stacks that show that the other ranks wait, or the lease.
//                        If no other node is free, the stacks have to show this for longer. If the
//                        attempt ends anyway, the ends of the other ranks are the second witness
//
// Pure functions and values. Instants use the coordinator's clock.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/job/ids.h"
#include "common/time/time.h"
#include "coordinator/core/core_options.h"
#include "coordinator/core/fleet/fleet.h"
#include "coordinator/core/hang/hang_detector.h"
#include "coordinator/core/incident/incident_book.h"
#include "coordinator/core/records/core_time.h"
#include "coordinator/core/records/job.h"

namespace muster::coordinator {

// The unreachable workers of one attempt. Volatile.
struct Reach {
  std::optional<Instant> next_check;
  // A reachable worker for which the ending attempt waits; empty: none was found yet.
  WorkerName awaited;
  // The unreachable workers. Persists after a suspicion ends.
  std::set<WorkerName> unreachable;
  // The incident that records all silences of the attempt.
  std::optional<IncidentId> silence;
  // Silences that are not recorded in the incident yet.
  std::vector<IncidentMoment> moments;

  void add(const WorkerName& name, const std::string& text, int64_t unix_ns);
  void remove(const WorkerName& name);
};

// A read-only view of one attempt.
struct ReachView {
  const Job& job;
  const RanksByWorker& ranks;
  const HangDetector& hang;
  // A rank has reported the loss of a peer.
  bool peer_lost = false;
};

// The result of check_reach(), which the caller applies.
struct ReachChanges {
  std::optional<Instant> next_check;
  // Workers that became unreachable.
  std::vector<WorkerName> gone;
  // Unreachable workers that have now been silent for long enough for an incident.
  std::vector<WorkerName> still_gone;
  // Workers that are reachable again, each with the evidence: a clause.
  std::vector<std::pair<WorkerName, std::string_view>> back;
};
// Returns the changes of reachability since the last check. `loss_after`: the silence after which
// stacks may confirm a loss.
ReachChanges check_reach(const ReachView& view, const Reach& reach, const Fleet& fleet,
                         const CoreOptions& options, Duration loss_after, Instant now);

// Returns the time from which the stacks of other ranks may confirm the loss of every unreachable
// worker. Returns the start of the clock if all workers are reachable.
Instant confirmable_at(const Reach& reach, const Fleet& fleet, Duration loss_after);

// Returns the unreachable workers that no longer explain the lack of progress, each with the
// reason: a clause.
std::vector<std::pair<WorkerName, std::string_view>> no_longer_unreachable(const ReachView& view,
                                                                           const Reach& reach,
                                                                           const Fleet& fleet,
                                                                           Instant now);
// Returns the silent workers whose ranks are lost because peers report a loss. Returns no worker if
// no rank has reported a loss.
std::vector<WorkerName> confirmed_by_peers(const ReachView& view, const Fleet& fleet,
                                           const CoreOptions& options, Instant now);
// Returns whether a worker of the job other than `other` is disconnected or unreachable.
bool misses_a_worker(const ReachView& view, const WorkerName& other, const Fleet& fleet,
                     Instant now);

// Returns the time until which the steps of the job show that its ranks on the silent worker run,
// so that only the network between the worker and the coordinator is broken. Returns a time in the
// past if they show nothing.
Instant run_until(const ReachView& view, const Worker& worker, const Fleet& fleet);

// Returns the unreachable workers if an ending attempt waits only for their ranks, which without
// the other ranks complete no step and save nothing. Returns no worker if the attempt also waits
// for a reachable worker, or if all its workers are silent: then the lease decides.
// `awaited`: the reachable worker that the last call has found, or an empty name. The search begins
// there, so that the calls at the ends of all ranks together pass each worker about once.
std::vector<WorkerName> awaited_out_of_reach(const ReachView& view, const Fleet& fleet,
                                             WorkerName& awaited, Instant now);
// Returns the time at which the ranks on `away` count as lost; nullopt if the lease decides. The
// time is not before `killed_at`, because a rank may use its grace to save.
std::optional<Instant> lost_at(const std::vector<WorkerName>& away,
                               const std::optional<Instant>& killed_at, const Fleet& fleet,
                               Duration loss_after);

// Returns the silent workers for whose ranks an ending attempt waits no longer, although their
// leases are extended: they are silent for a lease, and for a lease since `killed_at`, the time by
// which their ranks were to be killed. During an outage only a cancelled job does not wait, because
// no attempt follows whose ranks could meet the earlier ones.
std::vector<WorkerName> not_awaited(const ReachView& view, Instant killed_at, const Fleet& fleet,
                                    Instant now);

// Marks the worker as unreachable. Records the silence in the incident or, until there is an
// incident, in `reach`. Returns the text for the job's reason, which shows the silence immediately,
// because most silences end before they become an incident.
std::string mark_unreachable(IncidentBook& incidents, Reach& reach,
                             const std::optional<IncidentId>& incident, const Worker& worker,
                             const CoreTime& time);
// Marks the worker as reachable. `how`: a clause with the evidence. If all workers are reachable
// now, closes and resets the attempt's `incident`. Returns the text for the job's reason.
std::string mark_reachable(IncidentBook& incidents, Reach& reach,
                           std::optional<IncidentId>& incident, const WorkerName& name,
                           std::string_view how, int64_t unix_ns);

// Returns "worker node2 (host) cannot be reached: it has sent nothing for 1.2 s".
std::string silence_text(const Worker& worker, Instant now);
// Opens or continues the attempt's incident of silences, adds the earlier moments, and sets
// `incident`. Does nothing if the attempt already has an `incident`. All silences of an attempt
// share one incident, because a busy fleet has many, and each new incident may displace an older
// one from the storage.
void record_silence(IncidentBook& incidents, Reach& reach, std::optional<IncidentId>& incident,
                    const ReachView& view, const Worker& worker, const CoreTime& time);

}  // namespace muster::coordinator
