// Unreachable workers, and the ranks that are lost with them. liveness/reach.h contains the rules.
#include <utility>

#include <absl/strings/str_cat.h>

#include "common/absl_view.h"
#include "coordinator/core/core.h"
#include "coordinator/core/placement/hosts.h"

namespace muster::coordinator {

// Returns the silence after which stacks may confirm that a worker's ranks are lost. If other nodes
// are free, waiting longer wastes all other nodes of the job; if none is free, the job would have
// to wait anyway.
Duration Core::loss_after(const Job& job, size_t missing) const {
  return has_place_elsewhere(job, missing, attempts_.at(job.id).ranks, jobs_, live_jobs(), fleet_,
                             nodes_, time_)
             ? options_.unreachable_confirm
             : options_.unreachable_wait;
}

// Evaluates everything first and acts then, because the actions may end the attempt.
void Core::check_reach(Job& job) {
  if (job.cancel_requested) return;
  LiveAttempt& attempt = attempts_.at(job.id);
  if (attempt.victim_deadline) {
    for (const WorkerName& name :
         confirmed_by_peers(attempt.view(job), fleet_, options_, time_.now)) {
      if (!is_running(job.state)) return;
      give_up_ranks_of(job, name, "cannot be reached, and peers of its ranks have lost them");
    }
    if (!is_running(job.state)) return;
  }
  Reach& reach = attempt.reach;
  if (reach.next_check && *reach.next_check > time_.now && !attempt.victim_deadline) return;
  const size_t missing = reach.unreachable.size();
  const Duration lost = missing == 0 ? Duration::zero() : loss_after(job, missing);
  const ReachChanges changes =
      coordinator::check_reach(attempt.view(job), reach, fleet_, options_, lost, time_.now);
  reach.next_check = changes.next_check;
  for (const auto& [name, how] : changes.back) mark_reachable(job, name, how);
  for (const WorkerName& name : changes.still_gone)
    record_silence(incidents_, reach, attempt.incident, attempt.view(job), fleet_.at(name), time_);
  for (const WorkerName& name : changes.gone)
    if (is_running(job.state)) mark_unreachable(job, fleet_.at(name));
}

// The same for an attempt that is ending.
void Core::check_end(Job& job) {
  LiveAttempt& attempt = attempts_.at(job.id);
  attempt.reach.next_check.reset();
  if (job.cancel_requested) return;
  const std::vector<WorkerName> away = awaited_out_of_reach(attempt.view(job), fleet_, time_.now);
  if (away.empty()) return;
  const auto until = lost_at(away, attempt.kill.killed_at, fleet_, loss_after(job, away.size()));
  if (!until) return;
  if (*until > time_.now) {
    attempt.reach.next_check = until;
    return;
  }
  for (const WorkerName& name : away) {
    if (job.state == JobState::kRestarting)
      give_up_ranks_of(job, name, "cannot be reached, and the others' ranks have ended");
  }
}

// Shows the silence in the job's reason immediately. Most silences end before they become an
// incident.
void Core::mark_unreachable(Job& job, const Worker& worker) {
  LiveAttempt& attempt = attempts_.at(job.id);
  const std::string text = silence_text(worker, time_.now);
  attempt.reach.add(worker.name, attempt.incident ? "" : text, time_.unix_ns);
  attempt.suspicion.pages_awaited.erase(worker.name);
  if (attempt.incident) incidents_.note(*attempt.incident, time_.unix_ns, text);
  if (job.state == JobState::kRunning) {
    suspect(job, text);
  } else {
    climb(job);
  }
}

void Core::mark_reachable(Job& job, const WorkerName& name, std::string_view how) {
  LiveAttempt& attempt = attempts_.at(job.id);
  attempt.reach.remove(name);
  const bool all_reachable = attempt.reach.unreachable.empty();
  const std::string text = absl::StrCat("worker ", name.value(), " ", av(how));
  if (attempt.incident) {
    incidents_.note(*attempt.incident, time_.unix_ns, text);
    if (all_reachable) {
      if (Incident* incident = incidents_.change(*attempt.incident))
        incident->action = "none: its ranks ran on";
      incidents_.close(*attempt.incident);
      attempt.incident.reset();
    }
  }
  const bool waits = attempt.suspicion.next_dump.has_value();
  if (all_reachable && job.state == JobState::kSuspect && !waits) resume(job, text);
}

// The ranks may still run. If the stream is intact and resumes without another registration, it
// delivers the stop order.
void Core::give_up_ranks_of(Job& job, const WorkerName& name, std::string_view why) {
  LiveAttempt& attempt = attempts_.at(job.id);
  Worker* worker = fleet_.find(name);
  if (worker != nullptr && attempt.reach.unreachable.contains(name))
    record_silence(incidents_, attempt.reach, attempt.incident, attempt.view(job), *worker, time_);
  if (worker != nullptr && worker->connected) {
    std::set<RankId> orphans;
    for (const Rank rank : awaited_ranks(job, *worker)) orphans.insert({job.id, job.attempt, rank});
    stop_orphans(*worker, orphans);
    worker->orphans.merge(orphans);
  }
  lose_ranks_of(job, name, std::nullopt, why);
}

}  // namespace muster::coordinator
