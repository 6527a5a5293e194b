// Unreachable workers, and the ranks that are lost with them. liveness/reach.h contains the rules.
#include <utility>

#include "coordinator/core/core.h"
#include "coordinator/core/placement/hosts.h"

namespace muster::coordinator {

// Evaluates all workers first and then acts, because an action may end the attempt.
void Core::check_reach(Job& job) {
  if (job.cancel_requested || end_if_cut(job)) return;
  LiveAttempt& attempt = attempts_.at(job.id);
  for (const WorkerName& name :
       confirmed_by_peers(attempt.view(job), fleet_, options_, time_.now)) {
    give_up_ranks_of(job, name, "cannot be reached, and peers of its ranks have lost them");
    if (!is_running(job.state)) return;
  }
  if (!attempt.links.empty() && !attempt.reach.unreachable.empty()) {
    const Duration after = attempts_.loss_after(job, 1, jobs_, fleet_, nodes_, options_, time_);
    for (const WorkerName& name : confirmed_by_links(attempt.view(job), attempt.reach,
                                                     attempt.links, fleet_, after, time_.now)) {
      give_up_ranks_of(job, name, "cannot be reached, and does not answer its peers either");
      if (!is_running(job.state)) return;
    }
  }
  Reach& reach = attempt.reach;
  if (reach.next_check && *reach.next_check > time_.now && !attempt.victim_deadline) return;
  const size_t missing = reach.unreachable.size();
  const Duration lost =
      missing == 0 ? Duration::zero()
                   : attempts_.loss_after(job, missing, jobs_, fleet_, nodes_, options_, time_);
  const ReachChanges changes =
      coordinator::check_reach(attempt.view(job), reach, fleet_, options_, lost, time_.now);
  reach.next_check = changes.next_check;
  for (const auto& [name, how] : changes.back) {
    if (std::optional<LadderStep> step =
            attempt.mark_reachable(job, name, how, incidents_, dumps_, time_))
      take_step(job, *std::move(step));
  }
  for (const WorkerName& name : changes.still_gone)
    record_silence(incidents_, reach, attempt.incident, attempt.view(job), fleet_.at(name), time_);
  for (const WorkerName& name : changes.gone) {
    if (!is_running(job.state)) return;
    std::string text = attempt.mark_unreachable(fleet_.at(name), incidents_, time_);
    if (job.state == JobState::kRunning)
      take_step(job, attempt.ladder.suspect(attempt.ladder_view(job, fleet_, time_.now),
                                            std::move(text), attempt.progress.hang,
                                            {fleet_, dumps_, incidents_, options_, time_}));
    else
      climb(job);
  }
}

// Ends the attempt if two of its nodes cannot reach each other for too long. Returns whether it
// has ended.
bool Core::end_if_cut(Job& job) {
  LiveAttempt& attempt = attempts_.at(job.id);
  const HangDetector& hang = attempt.progress.hang;
  if (fleet_.is_cut_off() || hang.has_halted_ranks()) return false;
  std::optional<CutLink> cut = attempt.cut_link(job, fleet_, time_.now);
  if (!cut || cut_link_due(*cut, hang, true) > time_.now) return false;
  const bool has_other_node =
      has_replacement_nodes(job, 1, attempt.ranks, jobs_, attempts_.jobs(), fleet_, nodes_, time_);
  cut = find_cut_link(attempt.view(job), attempt.links, fleet_, time_.now);  // the newest one
  if (!cut || cut_link_due(*cut, hang, has_other_node) > time_.now) return false;
  if (cut->peer.value().empty()) {
    suspect_node(cut->node, {Suspicion::kWorkerLost, cut->sentence});
  } else if (!attempt.incident) {
    // Stacks have been read, and their incident already names the pair.
    attempt.incident = attempt.ladder.take_inconclusive();
    if (Incident* known = attempt.incident ? incidents_.change(*attempt.incident) : nullptr) {
      known->sentence = cut->sentence;
      incidents_.note(known->id, time_.unix_ns, cut->sentence);
    }
  }
  fault(job, fault_of_cut_link(job, *cut, time_.unix_ns));
  settle(job);
  return true;
}

// Declares the ranks of unreachable workers lost if an ending attempt waits only for them.
void Core::check_end(Job& job) {
  LiveAttempt& attempt = attempts_.at(job.id);
  attempt.reach.next_check.reset();
  for (const WorkerName& name :
       not_awaited(attempt.view(job), attempt.kill.first_killed_at, fleet_, time_.now)) {
    if (is_live(job.state)) give_up_ranks_of(job, name, "cannot be reached");
  }
  if (!is_live(job.state) || attempts_.find(job.id) == nullptr) return;
  if (job.cancel_requested) return;
  const std::vector<WorkerName> away =
      awaited_out_of_reach(attempt.view(job), fleet_, attempt.reach.awaited, time_.now);
  if (away.empty()) return;
  const Duration loss =
      attempts_.loss_after(job, away.size(), jobs_, fleet_, nodes_, options_, time_);
  const std::optional<Instant> until = lost_at(away, attempt.kill.killed_at, fleet_, loss);
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

// Called before the message of a worker is processed. The deadlines of dumps continue during an
// outage, so that callers get an answer.
void Core::end_outage(const WorkerName& sender) {
  const Duration time = fleet_.end_outage(sender, time_.now);
  if (time == Duration::zero()) return;
  excuse(time, time_.now);
  schedule_needed_ = true;
}

// Declares the job's ranks on the worker lost. The ranks may still run: if the worker's stream is
// intact and resumes without another registration, it delivers the order to stop.
void Core::give_up_ranks_of(Job& job, const WorkerName& name, std::string_view why) {
  LiveAttempt& attempt = attempts_.at(job.id);
  Worker* worker = fleet_.find(name);
  if (worker != nullptr && attempt.reach.unreachable.contains(name))
    record_silence(incidents_, attempt.reach, attempt.incident, attempt.view(job), *worker, time_);
  if (worker != nullptr && worker->connected) {
    std::set<RankId> orphans;
    for (const Rank rank : awaited_ranks(job, attempt.ranks, *worker))
      orphans.insert({job.id, job.attempt, rank});
    append(actions_, orders_to_stop_orphans(*worker, orphans));
    worker->orphans.merge(orphans);
  }
  lose_ranks_of(job, name, std::nullopt, why);
}

}  // namespace muster::coordinator
