// Workers: who may register, who is alive, what they run and what they report.
#include <algorithm>

#include <absl/strings/str_cat.h>

#include "common/absl_view.h"
#include "common/exit_code.h"
#include "coordinator/core/core.h"
#include "coordinator/core/recovery/restart_policy.h"

namespace muster::coordinator {

Worker* Core::current_worker(const WorkerName& name, Incarnation incarnation) {
  const auto it = workers_.find(name);
  const bool current =
      it != workers_.end() && it->second.incarnation == incarnation && it->second.connected;
  return current ? &it->second : nullptr;
}

Job* Core::live_job(JobId id, Attempt attempt) {
  const auto it = jobs_.find(id);
  if (it == jobs_.end() || !is_live(it->second.state) || it->second.attempt != attempt)
    return nullptr;
  return &it->second;
}

Job* Core::owner_of(const RankKey& key, const Worker& worker) {
  Job* job = live_job(key.job, key.attempt);
  if (job == nullptr || key.rank.value() < 0 || key.rank.value() >= std::ssize(job->placement)) {
    return nullptr;
  }
  const auto index = static_cast<size_t>(key.rank.value());
  const RankPlacement& placed = job->placement[index];
  const bool owned = placed.worker == worker.name && placed.incarnation == worker.incarnation &&
                     job->ranks[index].life != RankState::Life::kExited;
  return owned ? job : nullptr;
}

bool Core::takes_ranks(const Worker& worker) const {
  return worker.connected && !worker.leaving && !worker.given_up &&
         worker.version == options_.version;
}

absl::Status Core::admit(const WorkerRegistered& event) const {
  if (absl::Status status = check_registration(event, options_.limits); !status.ok()) return status;
  // In the middle of an upgrade: what it runs may end there, and is saved when it leaves.
  const bool has_ours = event.store == store_ && !event.running.empty();
  if (event.version != options_.version && !has_ours) {
    return absl::FailedPreconditionError(
        absl::StrCat("worker ", event.worker.value(), " is version ", event.version,
                     " and the coordinator is version ", options_.version,
                     ": install the same version on both"));
  }
  const auto it = workers_.find(event.worker);
  if (it != workers_.end() && it->second.connected && it->second.incarnation != event.incarnation) {
    return absl::AlreadyExistsError(
        absl::StrCat("a worker named ", event.worker.value(), " is already connected from host ",
                     it->second.host, ": give this one another --name"));
  }
  return absl::OkStatus();
}

void Core::on(const WorkerRegistered& event) {
  check_leases();
  if (absl::Status status = admit(event); !status.ok()) {
    actions_.push_back(RefuseRegistration{event.worker, std::move(status)});
    return;
  }
  const auto known = workers_.find(event.worker);
  const bool is_new_life =
      known != workers_.end() && known->second.incarnation != event.incarnation;
  lose_ranks(event.worker, event.incarnation, "was started anew");
  Worker& worker = workers_[event.worker];
  const bool died = is_new_life && worker.slots > 0 && !worker.leaving;
  worker.name = event.worker;
  worker.incarnation = event.incarnation;
  worker.host = event.host;
  worker.version = event.version;
  worker.rendezvous_address = event.rendezvous_address;
  worker.program_ports = event.program_ports;
  worker.switches = event.switches;
  worker.gpus = event.gpus;
  worker.no_gpus_because = event.no_gpus_because;
  worker.slots = event.slots;
  worker.connected = true;
  worker.away_since.reset();
  worker.given_up = false;
  worker.last_heard = now_;
  worker.heartbeats = 0;
  send(worker, SendRegistered{options_.heartbeat_interval, store_, unfinished_jobs()});
  compare_running(worker, event);
  worker.leaving = event.leaving.has_value();
  if (worker.leaving) preempt_ranks_of(worker, *event.leaving, "is leaving");
  if (died) nodes_.demand_check(worker.name);
  welcome_node(worker, is_new_life);
  schedule_needed_ = true;
}

std::vector<JobId> Core::unfinished_jobs() const {
  std::vector<JobId> unfinished;
  for (const auto& [id, job] : jobs_)
    if (!is_terminal(job.state) && job.attempt > Attempt(0)) unfinished.push_back(id);
  return unfinished;
}

// Any of them may have kept something for it, from an attempt long ago. Who is not connected hears it when it registers.
void Core::tell_job_ended(JobId job) {
  for (const auto& [name, worker] : workers_)
    if (worker.connected) send(worker, SendJobEnded{job});
}

void Core::compare_running(Worker& worker, const WorkerRegistered& event) {
  // Another store's ranks have numbers that mean other jobs here. The worker stops them by itself and registers again;
  // until then they hold their slots.
  const bool foreign = event.store != store_;
  std::set<RankKey> listed;
  std::set<RankKey> strays;
  std::set<JobId> stopping;
  for (const RunningRank& rank : event.running) {
    const RankKey key{rank.job, rank.attempt, rank.rank};
    if (foreign) {
      strays.insert(key);
      continue;
    }
    revive(key, worker);
    Job* job = owner_of(key, worker);
    if (job == nullptr) {
      strays.insert(key);
      continue;
    }
    listed.insert(key);
    job->ranks[static_cast<size_t>(rank.rank.value())].pid = rank.pid;
    if (rank.pid > 0) rank_up(*job, rank.rank);
    if (job->cancel_requested || job->state == JobState::kRestarting) stopping.insert(job->id);
    // The request may have been lost with the last stream.
    if (rank.rank == Rank(0) && launches_[job->id].checkpoint_after)
      send(worker, SendSaveCheckpoint{key.job, key.attempt, key.rank});
  }
  if (!foreign) stop_launches(worker, strays);
  worker.strays = std::move(strays);
  worker.strays_since.reset();
  if (!foreign && !worker.strays.empty()) worker.strays_since = now_;
  std::erase_if(worker.stuck, [&](const RankKey& key) { return !worker.strays.contains(key); });
  for (const JobId id : stopping) {
    const Job& job = jobs_.at(id);
    expect_ends(launches_.at(id), job.stop_grace);
    send(worker,
         SendStopRanks{id, job.attempt, job.stop_grace, job.reason, awaited_ranks(job, worker)});
  }
  worker.missing.clear();
  for (const auto& [id, launch] : launches_) {
    const Job& job = jobs_.at(id);
    for (const RankPlacement& rank : job.placement) {
      const RankKey key{id, job.attempt, rank.rank};
      if (owner_of(key, worker) != nullptr && !listed.contains(key)) worker.missing.insert(key);
    }
  }
}

// A rank that was taken for lost with its worker, and is there after all: its attempt is being stopped, and is over only
// when this rank is reaped, too.
void Core::revive(const RankKey& key, const Worker& worker) {
  Job* job = live_job(key.job, key.attempt);
  if (job == nullptr || key.rank.value() < 0 || key.rank.value() >= std::ssize(job->placement)) {
    return;
  }
  const auto index = static_cast<size_t>(key.rank.value());
  const RankPlacement& placed = job->placement[index];
  const bool reported = std::any_of(job->exits.begin(), job->exits.end(),
                                    [&](const RankExit& exit) { return exit.rank == key.rank; });
  if (placed.worker != worker.name || placed.incarnation != worker.incarnation || reported) return;
  RankState& state = job->ranks[index];
  if (state.life == RankState::Life::kExited) state.life = RankState::Life::kUp;
}

void Core::stop_launches(const Worker& worker, const std::set<RankKey>& strays) {
  std::map<std::pair<JobId, Attempt>, std::vector<Rank>> launches;
  for (const RankKey& key : strays) launches[{key.job, key.attempt}].push_back(key.rank);
  for (auto& [launch, ranks] : launches) {
    send(worker, SendStopRanks{launch.first, launch.second, Duration::zero(),
                               "this launch is not the job's current one", std::move(ranks)});
  }
}

void Core::on(const WorkerDisconnected& event) {
  if (Worker* worker = current_worker(event.worker, event.incarnation); worker != nullptr) {
    worker->connected = false;
    worker->away_since = now_;
    worker->strays_since.reset();
    worker->missing.clear();
    for (auto& [id, launch] : launches_)
      if (launch.ranks.contains(worker->name)) launch.reach_check = now_;
  }
}

void Core::on(const WorkerLeaving& event) {
  Worker* worker = current_worker(event.worker, event.incarnation);
  if (worker == nullptr) return;
  worker->last_heard = now_;
  worker->leaving = true;
  preempt_ranks_of(*worker, event.grace, "is leaving");
  schedule_needed_ = true;  // what waits may have to wait for others now
}

void Core::on(const HeartbeatReceived& event) {
  Worker* worker = current_worker(event.worker, event.incarnation);
  if (worker == nullptr) return;
  worker->last_heard = now_;
  hear_heartbeat(*worker);
  std::set<RankKey> strays;
  for (const RankProgress& progress : event.ranks) {
    const RankKey key{progress.job, progress.attempt, progress.rank};
    Job* job = owner_of(key, *worker);
    if (job == nullptr) {
      strays.insert(key);
      continue;
    }
    worker->missing.erase(key);
    RankState& state = job->ranks[static_cast<size_t>(progress.rank.value())];
    state.pid = progress.pid;
    state.phase = progress.phase;
    state.step = progress.step;
    state.loss = progress.loss;
    state.grad_norm = progress.grad_norm;
    state.step_seconds = progress.step_seconds;
    state.tokens_per_second = progress.tokens_per_second;
    state.tflops_per_device = progress.tflops_per_device;
    state.device_peak_tflops = progress.device_peak_tflops;
    state.checkpoint_step = progress.checkpoint_step;
    state.checkpoints = progress.checkpoints;
    std::optional<int64_t>& wanted = launches_[job->id].checkpoint_after;
    if (progress.rank == Rank(0) && wanted && progress.checkpoint_step > *wanted) wanted.reset();
    state.last_progress = now_ - progress.last_progress_age;
    state.process_state = progress.process_state;
    watch(*job, progress);
    rank_up(*job, progress.rank);
    account_progress(*job, progress);
  }
  hear_pages_of(*worker);
  // Told to stop once more, but holding no slots: what a worker really runs, its registration says.
  stop_launches(*worker, strays);
  if (worker->heartbeats < kHeartbeatsBeforeVerdict &&
      ++worker->heartbeats == kHeartbeatsBeforeVerdict) {
    judge_missing(*worker);
  }
}

// How late it has been lately, with ranks, is how late it may be again: the longest pause is forgotten slowly.
void Core::hear_heartbeat(Worker& worker) {
  constexpr Duration kPauseMax = std::chrono::seconds(3);
  constexpr double kForget = 0.99;
  if (worker.heartbeats > 0) {
    const Duration pause = std::min(now_ - worker.last_pages, kPauseMax);
    const auto before = std::chrono::duration_cast<Duration>(worker.longest_pause * kForget);
    worker.longest_pause = std::max(pause, before);
  }
  worker.last_pages = now_;
  if (!std::exchange(worker.given_up, false)) return;
  if (!worker.strays.empty()) worker.strays_since = now_;
  welcome_node(worker, /*is_new_life=*/false);
  schedule_needed_ = true;
}

// Ranks placed on `worker` that it neither runs nor has reported. One that never came up was
// perhaps never started, because its StartRanks was lost with a connection or a coordinator: it is
// sent again, and the worker ignores what it has already started. Any other is lost.
void Core::judge_missing(Worker& worker) {
  std::set<JobId> resend;
  for (const RankKey& key : std::exchange(worker.missing, {})) {
    Job* job = owner_of(key, worker);
    if (job == nullptr) continue;
    if (job->state == JobState::kStarting && !job->cancel_requested) {
      resend.insert(job->id);
      continue;
    }
    rank_gone(*job, key.rank);
    if (is_running(job->state) && !job->cancel_requested) {
      Fault cause;
      cause.rank = key.rank;
      cause.worker = worker.name;
      cause.exit_code = to_int(ExitCode::kFailure);
      cause.unix_ns = unix_ns_;
      cause.message = absl::StrCat("rank ", key.rank.value(), " is gone from ", worker.name.value(),
                                   ", which did not say how it ended");
      fault(*job, std::move(cause), Duration::zero());
    }
    settle(*job);
  }
  for (const JobId id : resend) {
    if (const Job* job = &jobs_.at(id); is_live(job->state)) send_start(*job, worker);
  }
}

void Core::on(const RankExited& event) {
  Worker* worker = current_worker(event.worker, event.incarnation);
  if (worker == nullptr) return;
  worker->last_heard = now_;
  const RankKey key{event.job, event.attempt, event.rank};
  worker->missing.erase(key);
  worker->stuck.erase(key);
  if (worker->strays.erase(key) > 0) schedule_needed_ = true;
  if (Job* job = owner_of(key, *worker); job != nullptr) {
    if (event.evidence != nullptr)
      launches_.at(job->id).crash.keep(event.rank, worker->name, *event.evidence);
    rank_exited(*job,
                {event.rank, event.exit_code, event.signal, event.last_step,
                 one_line(event.detail, options_.limits.detail_bytes_max), event.cause,
                 job->spec.is_program(), event.told_to_stop},
                worker->name);
  }
  send(*worker, SendReportAck{event.report_id});
}

// The ranks of `worker` are gone as far as anyone can tell, but for those of its life `survivor`. After a
// restart of the coordinator, jobs may still wait for ranks of more than one earlier life.
void Core::lose_ranks(const WorkerName& worker, std::optional<Incarnation> survivor,
                      std::string_view why) {
  std::vector<JobId> live;
  for (const auto& [id, launch] : launches_) live.push_back(id);
  for (const JobId id : live) lose_ranks_of(jobs_.at(id), worker, survivor, why);
}

void Core::lose_ranks_of(Job& job, const WorkerName& worker, std::optional<Incarnation> survivor,
                         std::string_view why) {
  int64_t last_step = -1;
  bool lost = false;
  for (const RankPlacement& rank : job.placement) {
    const RankState& state = job.ranks[static_cast<size_t>(rank.rank.value())];
    if (rank.worker != worker || rank.incarnation == survivor) continue;
    if (state.life == RankState::Life::kExited) continue;
    last_step = std::max(last_step, state.step);
    rank_gone(job, rank.rank);
    lost = true;
  }
  if (!lost) return;
  const auto known = workers_.find(worker);
  if (known != workers_.end() && known->second.incarnation != survivor) {
    const bool is_news = !std::exchange(known->second.given_up, true);
    if (is_news && !known->second.leaving)
      suspect_node(worker, Suspicion::kWorkerLost, absl::StrCat("it ", av(why)));
  }
  if (job.state != JobState::kRestarting && !job.cancel_requested) {
    Fault cause;
    cause.worker = worker;
    cause.exit_code = to_int(ExitCode::kFailure);
    cause.last_step = last_step;
    cause.unix_ns = unix_ns_;
    cause.message = absl::StrCat("worker ", worker.value(), " ", av(why), "; its ranks are lost");
    fault(job, std::move(cause), Duration::zero(), IncidentKind::kWorkerLost);
  }
  settle(job);
}

void Core::check_leases() {
  for (auto it = workers_.begin(); it != workers_.end();) {
    Worker& worker = it->second;
    if (worker.last_heard + options_.worker_lease > now_) {
      ++it;
      continue;
    }
    const std::string why =
        absl::StrCat("was not heard from for ", to_seconds(options_.worker_lease), " s");
    lose_ranks(worker.name, std::nullopt, why);
    if (worker.connected) {
      actions_.push_back(
          RefuseWorker{worker.name, worker.incarnation,
                       absl::UnavailableError(absl::StrCat("worker ", worker.name.value(), " ", why,
                                                           ": register again"))});
    }
    if (!worker.leaving && worker.slots > 0) nodes_.demand_check(worker.name);
    it = workers_.erase(it);
    schedule_needed_ = true;
  }
}

}  // namespace muster::coordinator
