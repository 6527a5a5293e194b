// Workers of a job that cannot be reached: killed, gone with their host, cut off, or so busy that
// they are late.
//
// Silence alone shows little, because ranks need no coordinator. So it has three steps, and only
// the last one stops anything:
//
//   unreachable_after    the job makes no progress, either: it is SUSPECT, and its reason names the
//                        worker
//   unreachable_confirm  an incident; most silences end before. A worker that is often late is given
//                        twice its longest pause
//   then                 its ranks are lost, when a second witness confirms it: peers that report them
//                        lost, stacks of the others that show them waiting, or the lease. If no other
//                        node is free for them, the stacks have to show it for longer. For an attempt
//                        that ends anyway, the ends of the other ranks are that witness
//
// Pure functions and values; instants are of the coordinator's clock.
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

// The reach of one attempt's workers. Volatile.
struct Reach {
  std::optional<Instant> next_check;
  // Outlives a suspicion.
  std::set<WorkerName> unreachable;
  // The attempt's incident of all silences.
  std::optional<IncidentId> silence;
  // The silences that are not in the incident yet.
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
  // Workers that were, and have been silent for long enough for an incident.
  std::vector<WorkerName> still_gone;
  // Workers that were and are not, each with the evidence: a clause.
  std::vector<std::pair<WorkerName, std::string_view>> back;
};
// `loss_after`: silence after which stacks may confirm a loss, when a worker is unreachable.
ReachChanges check_reach(const ReachView& view, const Reach& reach, const Fleet& fleet,
                         const CoreOptions& options, Duration loss_after, Instant now);

// The stacks of the other ranks may confirm the loss of each unreachable worker, at `before` from
// now at the latest.
bool may_be_confirmed(const Reach& reach, const Fleet& fleet, Duration loss_after, Instant now,
                      Duration before = Duration::zero());
// The time to read stacks: they are read during the silence, so that the verdict need not wait for
// them as well.
Duration stacks_take(const CoreOptions& options);

// Unreachable workers that explain nothing any more, each with the reason: a clause.
std::vector<std::pair<WorkerName, std::string_view>> explained(const ReachView& view,
                                                               const Reach& reach,
                                                               const Fleet& fleet, Instant now);
// Peers report a loss, and these workers are away: their ranks are the lost ones.
std::vector<WorkerName> confirmed_by_peers(const ReachView& view, const Fleet& fleet,
                                           const CoreOptions& options, Instant now);
// Ranks on another worker than `other` are out of reach.
bool misses_a_worker(const ReachView& view, const WorkerName& other, const Fleet& fleet,
                     Instant now);

// An ending attempt waits for ranks on these workers alone, which cannot be reached: without the
// others, their ranks make no step and save nothing. Empty: some other worker ends first, or all
// the others are silent, too, and the lease decides.
std::vector<WorkerName> awaited_out_of_reach(const ReachView& view, const Fleet& fleet,
                                             Instant now);
// When the ranks on `away` are lost. Not before `killed_at`: a rank that was given time to save may
// use it. Nothing: the lease decides.
std::optional<Instant> lost_at(const std::vector<WorkerName>& away,
                               const std::optional<Instant>& killed_at, const Fleet& fleet,
                               Duration loss_after);

// "worker node2 (host) cannot be reached: nothing was heard of it for 1.2 s".
std::string silence_text(const Worker& worker, Instant now);
// Opens or continues the attempt's incident of silences, with the earlier moments, unless the
// attempt has an `incident`; sets that. One incident for all silences of an attempt: a busy fleet
// has many, and each further incident displaces an older one.
void record_silence(IncidentBook& incidents, Reach& reach, std::optional<IncidentId>& incident,
                    const ReachView& view, const Worker& worker, const StepTime& time);

}  // namespace muster::coordinator
