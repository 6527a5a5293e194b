// Workers of a job that cannot be reached: killed, lost with their host, disconnected, or too busy
// to respond in time.
//
// Silence alone shows little, because ranks run without the coordinator. There are three stages,
// and only the last one stops anything:
//
//   unreachable_after    if the job makes no progress either, it becomes SUSPECT, and its reason
//                        names the worker
//   unreachable_confirm  an incident is opened; most silences end earlier. A worker that is often
//                        late gets twice its longest pause
//   then                 its ranks are lost when a second witness confirms it: peers that report
//                        them lost, stacks of the others that show them waiting, or the lease. If
//                        no other node is free for them, the stacks have to show it for longer. For
//                        an attempt that ends anyway, the ends of the other ranks are that witness
//
// Pure functions and values. Instants use the coordinator's clock.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/ids.h"
#include "common/time.h"
#include "coordinator/core/core_options.h"
#include "coordinator/core/fleet/fleet.h"
#include "coordinator/core/hang/hang_detector.h"
#include "coordinator/core/incident/incidents.h"
#include "coordinator/core/records/job.h"
#include "coordinator/core/records/step_time.h"

namespace muster::coordinator {

// The state of the unreachable workers of one attempt. Volatile.
struct Reach {
  std::optional<Instant> next_check;
  // Persists after a suspicion ends.
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

struct ReachChanges {
  std::optional<Instant> next_check;
  // Workers that became unreachable.
  std::vector<WorkerName> gone;
  // Unreachable workers that have now been silent for long enough for an incident.
  std::vector<WorkerName> still_gone;
  // Workers that are reachable again, each with the evidence: a clause.
  std::vector<std::pair<WorkerName, std::string_view>> back;
};
// Finds changes of reachability. `loss_after`: silence after which stacks may confirm a loss.
ReachChanges check_reach(const ReachView& view, const Reach& reach, const Fleet& fleet,
                         const CoreOptions& options, Duration loss_after, Instant now);

// Returns the time from which stacks of the other ranks may confirm the loss of every unreachable
// worker. The start of the clock if there is none.
Instant confirmable_at(const Reach& reach, const Fleet& fleet, Duration loss_after);

// Returns the unreachable workers that no longer explain the lack of progress, each with the
// reason: a clause.
std::vector<std::pair<WorkerName, std::string_view>> no_longer_unreachable(const ReachView& view,
                                                                           const Reach& reach,
                                                                           const Fleet& fleet,
                                                                           Instant now);
// Returns the silent workers whose ranks are lost because peers report a loss. Empty if no rank has
// reported one.
std::vector<WorkerName> confirmed_by_peers(const ReachView& view, const Fleet& fleet,
                                           const CoreOptions& options, Instant now);
// Returns whether ranks on a worker other than `other` are unreachable.
bool misses_a_worker(const ReachView& view, const WorkerName& other, const Fleet& fleet,
                     Instant now);

// Returns the unreachable workers if an ending attempt waits only for their ranks: without the
// other ranks, these make no steps and save nothing. Empty: the attempt also waits for reachable
// workers, or all other workers are silent too, and the lease decides.
std::vector<WorkerName> awaited_out_of_reach(const ReachView& view, const Fleet& fleet,
                                             Instant now);
// Returns when the ranks on `away` are lost; nullopt: the lease decides. Not before `killed_at`,
// because a rank may use its grace to save.
std::optional<Instant> lost_at(const std::vector<WorkerName>& away,
                               const std::optional<Instant>& killed_at, const Fleet& fleet,
                               Duration loss_after);

// Marks the worker as unreachable, for the incident or, until there is one, in `reach`. Returns the
// text for the job's reason, which shows the silence immediately: most silences end before they
// become an incident.
std::string mark_unreachable(IncidentBook& incidents, Reach& reach,
                             const std::optional<IncidentId>& incident, const Worker& worker,
                             const StepTime& time);
// Marks the worker as reachable, with the evidence `how`: a clause. If all workers are reachable
// now, the attempt's `incident` is closed and reset. Returns the text for the job's reason.
std::string mark_reachable(IncidentBook& incidents, Reach& reach,
                           std::optional<IncidentId>& incident, const WorkerName& name,
                           std::string_view how, int64_t unix_ns);

// "worker node2 (host) cannot be reached: nothing was heard of it for 1.2 s".
std::string silence_text(const Worker& worker, Instant now);
// Opens or continues the attempt's incident of silences, adds the earlier moments, and sets
// `incident`. Does nothing if the attempt already has an `incident`. All silences of an attempt
// share one incident, because a busy fleet has many, and each further incident displaces an older
// one.
void record_silence(IncidentBook& incidents, Reach& reach, std::optional<IncidentId>& incident,
                    const ReachView& view, const Worker& worker, const StepTime& time);

}  // namespace muster::coordinator
