// Workers: registrations, heartbeats, exit reports and leases.
#include <algorithm>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include "common/text/absl_view.h"
#include "coordinator/core/attempt/endings.h"
#include "coordinator/core/core.h"
#include "coordinator/core/incident/recovery.h"
#include "coordinator/core/placement/placement_pass.h"
#include "coordinator/core/recovery/restart_policy.h"

namespace muster::coordinator {
namespace {

// Records that a rank is running that was declared lost with its worker. Its attempt is stopping,
// and ends only when this rank has ended, too.
void revive(JobTable& jobs, AttemptTable& attempts, const RankId& id, const Worker& worker) {
  Job* job = jobs.live(id.job, id.attempt);
  if (job == nullptr || id.rank.value() < 0 || id.rank.value() >= std::ssize(job->placement)) {
    return;
  }
  const auto index = static_cast<size_t>(id.rank.value());
  const RankPlacement& placed = job->placement[index];
  if (job->ranks[index].life != RankState::Life::kExited) return;
  const bool reported = std::any_of(job->exits.begin(), job->exits.end(),
                                    [&](const RankExit& exit) { return exit.rank == id.rank; });
  if (placed.worker != worker.name || placed.incarnation != worker.incarnation || reported) return;
  attempts.at(id.job).revive_rank(*job, id.rank);
}

}  // namespace

void Core::on(const WorkerRegistered& event) {
  // The leases of other workers end at the next Tick: a later event of the same time may be their
  // heartbeat.
  if (const Worker* known = fleet_.find(event.worker);
      known != nullptr && renewed_lease_end(*known) <= time_.now)
    end_lease_of(event.worker, silence_of_lease(*known));
  absl::Status status = check_registration(event, options_.limits);
  if (status.ok())
    status = fleet_.check_registration(event, event.store == store_ && !event.running.empty(),
                                       time_.now);
  if (!status.ok()) {
    if (absl::IsUnavailable(status)) fleet_.record_refusal(time_.now);
    actions_.push_back(RefuseRegistration{event.worker, std::move(status)});
    return;
  }
  end_outage(event.worker);
  if (const Worker* old = fleet_.find(event.worker);
      old != nullptr && old->connected && old->incarnation != event.incarnation)
    end_lease_of(event.worker, "was restarted");
  const Worker* known = fleet_.find(event.worker);
  const bool is_new_life = known != nullptr && known->incarnation != event.incarnation;
  for (const JobId id : attempts_.jobs())
    lose_ranks_of(jobs_.at(id), event.worker, event.incarnation, "was restarted");
  const bool died = is_new_life && known->slots > 0 && !known->leaving;
  Worker& worker = fleet_.add(event, time_.now);
  for (const JobId id : attempts_.jobs())
    if (LiveAttempt& attempt = attempts_.at(id); attempt.ranks.contains(worker.name))
      attempt.links.forget_addresses();
  adapt_pace(worker.name);
  const Pace& pace = fleet_.pace();
  actions_.push_back(
      send_action(worker, SendRegistered{pace.idle, store_, jobs_.launched(), pace.lease, pace.busy,
                                         pace.spread, !options_.coordinator.empty(), left_at_}));
  compare_running(worker, event);
  worker.leaving = event.leaving.has_value();
  if (worker.leaving) preempt_ranks_of(worker, *event.leaving, "is leaving");
  if (died) nodes_.require_check(worker.name);
  worker.check.id = 0;       // requests on the earlier stream are not answered
  leave_sweep(worker.name);  // the same for a deep check
  if (is_new_life) worker.check.passed.reset();
  if (!nodes_.is_sound(worker.name)) append(actions_, checks_.request(worker, time_.now));
  schedule_needed_ = true;
}

// Sends the pace to all connected workers if it has changed, except to `newcomer`, which receives
// it with its registration.
void Core::adapt_pace(const WorkerName& newcomer) {
  if (!fleet_.adapt_pace(time_.now)) return;
  const Pace& pace = fleet_.pace();
  for (const auto& [name, worker] : fleet_.all()) {
    if (worker.connected && name != newcomer)
      actions_.push_back(
          send_action(worker, SendPace{pace.idle, pace.busy, pace.lease, pace.spread}));
  }
}

void Core::compare_running(Worker& worker, const WorkerRegistered& event) {
  // The ranks may belong to another state store, in which their job numbers denote other jobs. The
  // worker stops such ranks by itself and registers again; until then they occupy their slots.
  const bool foreign = event.store != store_;
  std::set<RankId> listed;
  std::set<RankId> orphans;
  std::set<JobId> stopping;
  for (const RunningRank& rank : event.running) {
    const RankId id{rank.job, rank.attempt, rank.rank};
    if (foreign) {
      orphans.insert(id);
      continue;
    }
    revive(jobs_, attempts_, id, worker);
    Job* job = jobs_.owner_of(id, worker);
    if (job == nullptr) {
      orphans.insert(id);
      continue;
    }
    listed.insert(id);
    job->ranks[static_cast<size_t>(rank.rank.value())].pid = rank.pid;
    if (rank.pid > 0) rank_up(*job, rank.rank);
    if (job->cancel_requested || job->state == JobState::kRestarting) stopping.insert(job->id);
    // The checkpoint request may have been lost with the last stream.
    if (rank.rank == Rank(0) && attempts_.at(job->id).checkpoint_after)
      actions_.push_back(send_action(worker, SendSaveCheckpoint{id.job, id.attempt, id.rank}));
  }
  if (!foreign) append(actions_, orders_to_stop_orphans(worker, orphans));
  worker.orphans = std::move(orphans);
  worker.orphans_since.reset();
  if (!foreign && !worker.orphans.empty()) worker.orphans_since = time_.now;
  std::erase_if(worker.stuck, [&](const RankId& id) { return !worker.orphans.contains(id); });
  for (const JobId id : stopping) {
    const Job& job = jobs_.at(id);
    attempts_.at(id).kill.expect_ends(job.stop_grace, waits_for_save(job, options_), options_,
                                      time_.now);
    actions_.push_back(
        send_action(worker, SendStopRanks{id, job.attempt, job.stop_grace, job.reason,
                                          awaited_ranks(job, attempts_.at(id).ranks, worker),
                                          waits_for_save(job, options_)}));
  }
  worker.missing.clear();
  for (const auto& [job_id, attempt] : attempts_.all()) {
    const Job& job = jobs_.at(job_id);
    for (const Rank rank : awaited_ranks(job, attempt.ranks, worker)) {
      const RankId id{job_id, job.attempt, rank};
      if (!listed.contains(id)) worker.missing.insert(id);
    }
  }
}

void Core::on(const WorkerDisconnected& event) {
  Worker* worker = fleet_.current(event.worker, event.incarnation);
  if (worker == nullptr) return;
  worker->connected = false;
  worker->disconnected_at = time_.now;
  worker->orphans_since.reset();
  worker->missing.clear();
  for (auto& [id, attempt] : attempts_.all())
    if (attempt.ranks.contains(worker->name)) attempt.reach.next_check = time_.now;
  leave_sweep(worker->name);
}

void Core::on(const WorkerLeaving& event) {
  Worker* worker = fleet_.receive(event.worker, event.incarnation, time_.now);
  if (worker == nullptr) return;
  worker->leaving = true;
  preempt_ranks_of(*worker, event.grace, "is leaving");
  schedule_needed_ = true;  // waiting jobs may now wait for other workers
}

void Core::on(const HeartbeatReceived& event) {
  Worker* worker = fleet_.receive(event.worker, event.incarnation, time_.now);
  if (worker == nullptr) return;
  if (fleet_.observe_heartbeat(*worker, time_.now)) {
    worker->check.id = 0;  // earlier requests are not answered
    if (!nodes_.is_sound(worker->name)) append(actions_, checks_.request(*worker, time_.now));
    schedule_needed_ = true;
  }
  std::set<RankId> orphans;
  std::set<JobId> saving;
  for (const RankProgress& progress : event.ranks) {
    const RankId id{progress.job, progress.attempt, progress.rank};
    Job* job = jobs_.owner_of(id, *worker);
    if (job == nullptr) {
      orphans.insert(id);
      continue;
    }
    worker->missing.erase(id);
    observe_rank(*job, progress);
    if (attempts_.at(job->id).kill.waits_for_saves) saving.insert(job->id);
  }
  for (const JobId id : saving) attempts_.at(id).follow_saves(jobs_.at(id), options_, time_.now);
  // The worker's pages have arrived, and may be the last ones that a suspicion waits for.
  std::vector<JobId> concerned;
  for (const JobId id : suspects_) {
    LiveAttempt& attempt = attempts_.at(id);
    if (attempt.ladder.receive_pages(worker->name) ||
        attempt.reach.unreachable.contains(worker->name) ||
        attempt.progress.hang.due() > time_.now) {
      concerned.push_back(id);
    }
  }
  for (const JobId id : concerned) {
    if (!suspects_.contains(id)) continue;
    Job& job = jobs_.at(id);
    LiveAttempt& attempt = attempts_.at(id);
    if (attempt.reach.unreachable.contains(worker->name)) {
      if (std::optional<LadderStep> step = attempt.mark_reachable(
              job, worker->name, "is reachable again", incidents_, dumps_, time_))
        take_step(job, *std::move(step));
    }
    climb(job);
  }
  // Ranks in the heartbeat that belong to no current attempt are ordered to stop again. They do not
  // count as orphans that occupy slots, because only a registration lists the ranks that the worker
  // really runs.
  append(actions_, orders_to_stop_orphans(*worker, orphans));
  if (worker->heartbeats < kHeartbeatsBeforeVerdict &&
      ++worker->heartbeats == kHeartbeatsBeforeVerdict) {
    judge_missing(*worker);
  }
}

void Core::observe_rank(Job& job, const RankProgress& progress) {
  LiveAttempt& attempt = attempts_.at(job.id);
  const bool changes_nodes = attempt.observe(job, progress, options_.slow_nodes, incidents_, time_);
  attempt.links.observe(attempt.view(job), progress.rank, progress.stalled_links, fleet_,
                        time_.now);
  rank_up(job, progress.rank);
  accounts_.observe(job, progress, time_);
  AttemptWatch& steps = attempt.progress.steps;
  const AttemptWatch::News news =
      steps.observe(static_cast<size_t>(progress.rank.value()), progress.phase, progress.step,
                    progress.step_times.total());
  if (news.first_step && attempt.began) attempt.start_time = time_.now - *attempt.began;
  bool is_due = changes_nodes || news.first_step || accounts_.is_due(job.id, time_.now);
  if (job.recovering != IncidentId(0) &&
      follow_recovery(incidents_, job, steps, progress, news, time_.unix_ns)) {
    is_due = true;
    end_recovery(incidents_, job, IncidentId(0), attempt.progress.hang.is_silent());
  }
  if (is_due) jobs_.store(job.id);
  watch_revision(job, progress);
  if (progress.rank == Rank(0)) watch_slow_nodes(job);
}

// Handles ranks placed on `worker` that it neither runs nor has reported. A rank that never came up
// may not have been started, because its StartRanks was lost with a connection or a coordinator:
// the order is sent again, and the worker ignores ranks that it has already started. Any other rank
// is lost.
void Core::judge_missing(Worker& worker) {
  std::set<JobId> resend;
  for (const RankId& id : std::exchange(worker.missing, {})) {
    Job* job = jobs_.owner_of(id, worker);
    if (job == nullptr) continue;
    if (job->state == JobState::kStarting && !job->cancel_requested) {
      resend.insert(job->id);
      continue;
    }
    attempts_.at(id.job).end_rank(*job, id.rank);
    if (is_running(job->state) && !job->cancel_requested)
      fault(*job, fault_of_missing_rank(id.rank, worker.name, time_.unix_ns));
    settle(*job);
  }
  for (const JobId id : resend) {
    const Job& job = jobs_.at(id);
    if (is_live(job.state))
      actions_.push_back(order_to_start(job, spec_of_attempt(job), attempts_.at(id).ranks, worker));
  }
}

void Core::on(const RankExited& event) {
  Worker* worker = fleet_.receive(event.worker, event.incarnation, time_.now);
  if (worker == nullptr) return;
  const RankId id{event.job, event.attempt, event.rank};
  worker->missing.erase(id);
  worker->stuck.erase(id);
  if (worker->orphans.erase(id) > 0) schedule_needed_ = true;
  if (Job* job = jobs_.owner_of(id, *worker); job != nullptr) {
    if (event.evidence != nullptr)
      attempts_.at(job->id).crash.add(event.rank, worker->name, *event.evidence);
    end_rank(*job,
             {event.rank, event.exit_code, event.signal, event.last_step,
              one_line(event.detail, options_.limits.detail_bytes_max), event.cause,
              job->spec.is_program(), event.stop_ordered, event.output_incomplete,
              one_line(event.lost_link, options_.limits.detail_bytes_max), event.link_is_down},
             worker->name);
  }
  actions_.push_back(send_action(*worker, SendReportAck{event.report_id}));
}

// Declares the job's ranks on `worker` lost, except those of incarnation `survivor`. After a
// coordinator restart, jobs may still wait for ranks of several earlier incarnations.
void Core::lose_ranks_of(Job& job, const WorkerName& worker, std::optional<Incarnation> survivor,
                         std::string_view why) {
  LiveAttempt& attempt = attempts_.at(job.id);
  const auto here = attempt.ranks.find(worker);
  if (here == attempt.ranks.end()) return;
  int64_t last_step = -1;
  bool lost = false;
  for (const Rank rank : here->second) {
    const auto index = static_cast<size_t>(rank.value());
    const RankState& state = job.ranks[index];
    if (job.placement[index].incarnation == survivor) continue;
    if (state.life == RankState::Life::kExited) continue;
    last_step = std::max(last_step, state.step);
    attempt.end_rank(job, rank);
    lost = true;
  }
  if (!lost) return;
  Worker* known = fleet_.find(worker);
  if (known != nullptr && known->incarnation != survivor) {
    const bool is_news = !std::exchange(known->given_up, true);
    // The ranks of a cancelled job are not awaited during an outage, which implicates no node.
    const bool is_evidence = !job.cancel_requested || fleet_.judged_from(*known) <= time_.now;
    if (is_news && is_evidence && !known->leaving)
      suspect_node(worker, {Suspicion::kWorkerLost, absl::StrCat("it ", av(why))});
  }
  if (job.state != JobState::kRestarting && !job.cancel_requested)
    fault(job, fault_of_lost_worker(worker, why, last_step, time_.unix_ns));
  settle(job);
}

// Returns the end of the worker's lease, which jobs extend whose steps show that its ranks run.
Instant Core::renewed_lease_end(const Worker& worker) const {
  Instant end = fleet_.lease_end(worker);
  for (const auto& [id, attempt] : attempts_.all()) {
    const Job& job = jobs_.at(id);
    if (is_running(job.state) && !job.cancel_requested && has_ranks(job, attempt.ranks, worker))
      end = std::max(end, run_until(attempt.view(job), worker, fleet_));
  }
  return end;
}

std::string Core::silence_of_lease(const Worker& worker) const {
  const Duration length = std::max(renewed_lease_end(worker) - worker.last_message, fleet_.lease());
  return absl::StrFormat("sent nothing for %.6g s", to_seconds(length));
}

void Core::end_lease_of(const WorkerName& name, std::string_view why) {
  for (const JobId id : attempts_.jobs()) lose_ranks_of(jobs_.at(id), name, std::nullopt, why);
  const Worker& worker = fleet_.at(name);
  if (worker.connected) {
    actions_.push_back(
        RefuseWorker{name, worker.incarnation,
                     absl::UnavailableError(
                         absl::StrCat("worker ", name.value(), " ", av(why), ": register again"))});
  }
  if (!worker.leaving && worker.slots > 0) nodes_.require_check(name);
  fleet_.erase(name);
  leave_sweep(name);
  schedule_needed_ = true;
}

}  // namespace muster::coordinator
