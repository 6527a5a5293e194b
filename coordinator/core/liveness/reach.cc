#include "coordinator/core/liveness/reach.h"

#include <algorithm>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include "common/text/absl_view.h"
#include "coordinator/core/hang/dump_table.h"

namespace muster::coordinator {
namespace {

// Returns whether the worker has been silent for silence_max(), also while Fleet::is_unreachable()
// judges no silence. A worker that is unreachable remains so until it sends a message, or until a
// pause of the coordinator is excused.
bool is_still_silent(const Worker& worker, const Fleet& fleet, Instant now) {
  return !fleet.is_excused(now) && worker.last_message + fleet.silence_max() <= now;
}

// Returns whether the job has made no progress since the last message of the worker. While other
// ranks progress, or soon after the last message of the job's only worker, a late worker is not
// missing yet. The same holds until the job's next sign of progress is due.
bool is_missed(const ReachView& view, const Worker& worker, const Fleet& fleet, Instant now) {
  constexpr int32_t kAlone = 3;
  const Duration patience = fleet.silence_max();
  const Instant progress = view.hang.last_progress();
  // If ranks progressed after the worker's last message, they must also have made no progress for
  // some time since.
  if (progress > worker.last_message + patience / 2 && progress + patience / 2 > now) return false;
  const Duration news = view.hang.usual_silence() + fleet.heartbeat_interval();
  if (!worker.disconnected_at && progress + news > now) return false;
  const bool alone = view.ranks.size() == 1 && !worker.disconnected_at;
  return !alone || worker.last_message + kAlone * patience <= now;
}

}  // namespace

void Reach::add(const WorkerName& name, const std::string& text, int64_t unix_ns) {
  // Leaves room for the incident's other moments.
  constexpr size_t kMomentsMax = kIncidentMomentsMax / 2;
  unreachable.insert(name);
  if (!text.empty() && moments.size() < kMomentsMax) moments.push_back({unix_ns, text});
}

void Reach::remove(const WorkerName& name) {
  unreachable.erase(name);
  if (unreachable.empty()) moments.clear();
}

ReachChanges check_reach(const ReachView& view, const Reach& reach, const Fleet& fleet,
                         const CoreOptions& options, Duration loss_after, Instant now) {
  ReachChanges changes;
  const auto check_at = [&](Instant t) {
    if (t > now) changes.next_check = changes.next_check ? std::min(*changes.next_check, t) : t;
  };
  for (const auto& [name, ranks] : view.ranks) {
    const Worker* found = fleet.find(name);
    if (found == nullptr || !has_ranks(view.job, view.ranks, *found)) continue;
    const Worker& worker = *found;
    if (view.peer_lost && worker.disconnected_at)
      check_at(*worker.disconnected_at + options.broken_stream_wait);
    const bool was = reach.unreachable.contains(name);
    if (!fleet.is_unreachable(worker, now)) {
      if (was && !is_still_silent(worker, fleet, now))
        changes.back.emplace_back(name, "is reachable again");
      check_at(std::max(worker.last_message + fleet.silence_max(), fleet.reachable_until()));
      continue;
    }
    check_at(now + options.unreachable_after / 4);
    // The other ranks complete no step without the worker's ranks. If they do, only the network
    // between the worker and the coordinator is broken.
    const bool runs =
        view.hang.completed_steps_since(worker.last_message, fleet.heartbeat_interval(), now);
    if (was && runs) {
      changes.back.emplace_back(name, "sends nothing, but its ranks run: steps are completed");
    } else if (was) {
      const Duration patience = fleet.patience_with(worker);
      const Duration incident = std::max(options.unreachable_confirm, patience);
      if (fleet.is_silent_for(worker, incident, now)) changes.still_gone.push_back(name);
      const Duration lost = std::max(loss_after, patience);
      for (const Duration time : {incident, lost - time_of_dump(options), lost})
        check_at(worker.last_message + time);
    }
    if (!was && !runs && is_missed(view, worker, fleet, now)) changes.gone.push_back(name);
  }
  return changes;
}

Instant confirmable_at(const Reach& reach, const Fleet& fleet, Duration loss_after) {
  Instant from{};
  for (const WorkerName& name : reach.unreachable) {
    if (const Worker* worker = fleet.find(name))
      from = std::max({from, fleet.judged_from(*worker),
                       worker->last_message + std::max(loss_after, fleet.patience_with(*worker))});
  }
  return from;
}

std::vector<std::pair<WorkerName, std::string_view>> no_longer_unreachable(const ReachView& view,
                                                                           const Reach& reach,
                                                                           const Fleet& fleet,
                                                                           Instant now) {
  std::vector<std::pair<WorkerName, std::string_view>> back;
  for (const WorkerName& name : reach.unreachable) {
    const Worker* worker = fleet.find(name);
    const bool there = worker != nullptr && has_ranks(view.job, view.ranks, *worker);
    if (there && is_still_silent(*worker, fleet, now)) continue;
    back.emplace_back(name, there ? "is reachable again" : "has none of its ranks any more");
  }
  return back;
}

std::vector<WorkerName> confirmed_by_peers(const ReachView& view, const Fleet& fleet,
                                           const CoreOptions& options, Instant now) {
  std::vector<WorkerName> names;
  if (!view.peer_lost) return names;
  for (const auto& [name, ranks] : view.ranks) {
    const Worker* worker = fleet.find(name);
    if (worker == nullptr || !has_ranks(view.job, view.ranks, *worker)) continue;
    if (fleet.judged_from(*worker) > now) continue;
    const bool stayed_away = worker->slots > 0 && worker->disconnected_at &&
                             *worker->disconnected_at + options.broken_stream_wait <= now;
    if (stayed_away || fleet.is_silent_for(*worker, fleet.patience_with(*worker), now))
      names.push_back(name);
  }
  return names;
}

bool misses_a_worker(const ReachView& view, const WorkerName& other, const Fleet& fleet,
                     Instant now) {
  return std::ranges::any_of(view.ranks, [&](const auto& entry) {
    const Worker* worker = fleet.find(entry.first);
    return worker != nullptr && entry.first != other && has_ranks(view.job, view.ranks, *worker) &&
           (worker->disconnected_at || fleet.is_unreachable(*worker, now));
  });
}

std::vector<WorkerName> awaited_out_of_reach(const ReachView& view, const Fleet& fleet,
                                             WorkerName& awaited, Instant now) {
  const auto is_awaited = [&](const Worker* worker) {
    return worker != nullptr && has_ranks(view.job, view.ranks, *worker);
  };
  auto entry = view.ranks.lower_bound(awaited);
  for (size_t i = 0; i < view.ranks.size(); ++i, ++entry) {
    if (entry == view.ranks.end()) entry = view.ranks.begin();
    const Worker* worker = fleet.find(entry->first);
    if (!is_awaited(worker) || worker->disconnected_at || fleet.is_unreachable(*worker, now))
      continue;
    awaited = entry->first;
    return {};
  }
  std::vector<WorkerName> away;
  for (const auto& [name, ranks] : view.ranks)
    if (is_awaited(fleet.find(name))) away.push_back(name);
  if (away.size() == view.ranks.size()) away.clear();
  return away;
}

std::optional<Instant> lost_at(const std::vector<WorkerName>& away,
                               const std::optional<Instant>& killed_at, const Fleet& fleet,
                               Duration loss_after) {
  Instant until = killed_at.value_or(Instant{});
  for (const WorkerName& name : away) {
    const Worker& worker = fleet.at(name);
    if (worker.slots == 0) return std::nullopt;
    until = std::max({until, fleet.reachable_until(), fleet.judged_from(worker),
                      worker.last_message + std::max(loss_after, fleet.patience_with(worker))});
  }
  return until;
}

Instant run_until(const ReachView& view, const Worker& worker, const Fleet& fleet) {
  // A lost rank may have contributed to the step in progress, but not to the next one. Heartbeats
  // with the news may be late.
  constexpr int32_t kStepsUntilEvidence = 2;
  constexpr int32_t kHeartbeatsUntilEvidence = 4;
  // The ranks of a program may be independent of each other, so their steps are no proof.
  constexpr int64_t kLeasesOfPrograms = 60;
  const HangDetector& hang = view.hang;
  const Duration lease = fleet.lease();
  const Duration news = fleet.heartbeat_interval();
  const Instant then = worker.last_message;
  if (view.ranks.size() < 2) return {};
  Instant until{};
  if (hang.completed_steps_since(then, news, hang.last_step_or_phase()))
    until = hang.last_step_or_phase() + lease;
  else if (const Duration step = hang.step_time(); step <= lease)
    until = then + kStepsUntilEvidence * step + kHeartbeatsUntilEvidence * news;
  return view.job.spec.is_program() ? std::min(until, then + kLeasesOfPrograms * lease) : until;
}

std::vector<WorkerName> not_awaited(const ReachView& view, Instant killed_at, const Fleet& fleet,
                                    Instant now) {
  if (killed_at + fleet.lease() > now) return {};
  std::vector<WorkerName> names;
  for (const auto& [name, ranks] : view.ranks) {
    const Worker* worker = fleet.find(name);
    if (worker == nullptr || worker->last_message + fleet.lease() > now) continue;
    const bool is_judged = view.job.cancel_requested || fleet.judged_from(*worker) <= now;
    if (is_judged && has_ranks(view.job, view.ranks, *worker)) names.push_back(name);
  }
  return names;
}

std::string mark_unreachable(IncidentBook& incidents, Reach& reach,
                             const std::optional<IncidentId>& incident, const Worker& worker,
                             const CoreTime& time) {
  std::string text = silence_text(worker, time.now);
  reach.add(worker.name, incident ? "" : text, time.unix_ns);
  if (incident) incidents.note(*incident, time.unix_ns, text);
  return text;
}

std::string mark_reachable(IncidentBook& incidents, Reach& reach,
                           std::optional<IncidentId>& incident, const WorkerName& name,
                           std::string_view how, int64_t unix_ns) {
  reach.remove(name);
  std::string text = absl::StrCat("worker ", name.value(), " ", av(how));
  if (!incident) return text;
  incidents.note(*incident, unix_ns, text);
  if (!reach.unreachable.empty()) return text;
  if (Incident* record = incidents.change(*incident)) record->action = "none: its ranks ran on";
  incidents.close(*incident);
  incident.reset();
  return text;
}

std::string silence_text(const Worker& worker, Instant now) {
  const std::string how = worker.disconnected_at
                              ? absl::StrFormat("its stream broke %.1f s ago",
                                                to_seconds(now - *worker.disconnected_at))
                              : absl::StrFormat("it has sent nothing for %.1f s",
                                                to_seconds(now - worker.last_message));
  return absl::StrCat("worker ", worker.name.value(), " (", worker.host,
                      ") cannot be reached: ", how);
}

void record_silence(IncidentBook& incidents, Reach& reach, std::optional<IncidentId>& incident,
                    const ReachView& view, const Worker& worker, const CoreTime& time) {
  if (incident) return;
  Fault what;
  what.worker = worker.name;
  what.unix_ns = time.unix_ns;
  what.message = silence_text(worker, time.now);
  Incident fresh = incident_of_fault(view.job, what, IncidentKind::kWorkerLost,
                                     time.unix_ns_of(view.hang.last_progress()));
  if (Incident* known = reach.silence ? incidents.change(*reach.silence) : nullptr) {
    known->open = true;
    known->sentence = std::move(fresh.sentence);
    known->suspects = std::move(fresh.suspects);
  } else {
    fresh.moments.pop_back();
    reach.silence = incidents.open(std::move(fresh));
    incidents.await(*reach.silence);
  }
  incident = reach.silence;
  for (IncidentMoment& moment : std::exchange(reach.moments, {}))
    incidents.note(*reach.silence, moment.unix_ns, std::move(moment.text));
  incidents.note(*reach.silence, time.unix_ns, what.message);
  incidents.change(*reach.silence)->action = "none yet: its ranks may continue";
}

}  // namespace muster::coordinator
