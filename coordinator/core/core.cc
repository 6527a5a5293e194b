#include "coordinator/core/core.h"

#include <algorithm>

#include <absl/strings/str_cat.h>

#include "coordinator/core/fleet/node_checks.h"
#include "coordinator/core/placement/hosts.h"
#include "coordinator/core/placement/placement_pass.h"
#include "coordinator/core/recovery/restart_policy.h"

namespace muster::coordinator {

Core::Core(CoreOptions options, DurableState state, Instant now)
    : options_(std::move(options)),
      store_(state.store),
      jobs_(std::move(state.request_ids), state.last_job_id),
      fleet_(options_),
      nodes_(std::move(state.nodes)),
      incidents_(state.incidents, std::move(state.open_incidents)),
      time_{now, 0} {
  for (Job& job : state.jobs) restore(std::move(job));
  schedule_needed_ = any_job_needs_workers();
}

void Core::restore(Job stored) {
  Job& job = jobs_.restore(std::move(stored));
  const JobId id = job.id;
  const Instant now = time_.now;
  if (job.state == JobState::kQueued) {
    // The job's workers have not registered again yet.
    const Instant back = now + options_.worker_lease;
    queue_.add(id, job.spec.priority, now, back + options_.whole_wait,
               hold_until(job, back, options_.keep_nodes));
    if (job.not_before_unix_ns > 0) backed_off_.push_back(id);
  } else if (is_live(job.state)) {
    job.ranks.assign(job.placement.size(), RankState{});
    if (job.state == JobState::kSuspect || job.state == JobState::kDumping) {
      job.state = JobState::kRunning;
      jobs_.note(job,
                 absl::StrCat("the coordinator was started anew, and looks again: ", job.reason));
    }
    const bool undecided = job.state != JobState::kRestarting && !job.cancel_requested;
    std::optional<Instant> victim_deadline;
    for (const RankExit& exit : job.exits) {
      job.ranks[static_cast<size_t>(exit.rank.value())].life = RankState::Life::kExited;
      if (undecided && !is_success(exit)) victim_deadline = now + options_.culprit_wait;
    }
    LiveAttempt& attempt = attempts_.emplace(id, LiveAttempt(options_, job, now)).first->second;
    attempt.victim_deadline = victim_deadline;
    if (undecided && job.state == JobState::kStarting)
      attempt.start_deadline = now + options_.start_budget;
    fleet_.await_workers_of(job, now);
    if (is_running(job.state)) restored_running_.push_back(id);
  }
  if (is_terminal(job.state)) return;
  if (job.recovering != IncidentId(0)) incidents_.await(job.recovering);
  accounts_.restore(job, now);
}

// A coordinator that was stopped, swapped out or blocked by its disk received and sent nothing:
// that time counts against no worker or job. While the core waits for workers or ranks, a Tick is
// due within a heartbeat interval. Otherwise it may be idle for long, and only a gap after a due
// Tick is a stall.
void Core::excuse_own_stall(Instant now) {
  Instant expected = time_.now;
  if (fleet_.all().empty() && attempts_.empty()) {
    const std::optional<Instant> due = next_deadline();
    if (!due) return;
    expected = std::max(expected, *due);
  }
  const Duration late = now - (expected + options_.heartbeat_interval);
  if (late <= Duration::zero()) return;
  fleet_.excuse(late, now);
  queue_.excuse(late);
  dumps_.excuse(late);
  for (auto& [id, attempt] : attempts_) attempt.excuse(late);
}

// Back-offs that began before a restart continue once the time of day is known. None exceeds the
// maximum back-off, whatever the clocks show.
void Core::resume_backoffs() {
  if (time_.unix_ns == 0) return;
  for (const JobId id : std::exchange(backed_off_, {})) {
    const Job* job = jobs_.find(id);
    if (job == nullptr || job->state != JobState::kQueued) continue;
    const Duration left =
        std::clamp(Duration(job->not_before_unix_ns - time_.unix_ns), Duration::zero(),
                   std::max({kBackoffMax, kPreemptedDelay, kMendedDelayMax}));
    queue_.remove(id, job->spec.priority);
    const Instant back = time_.now + std::max(left, options_.worker_lease);
    queue_.add(id, job->spec.priority, time_.now + left, back + options_.whole_wait,
               hold_until(*job, back, options_.keep_nodes));
  }
}

void Core::step(const Event& event, Instant now, ActionList& out) {
  excuse_own_stall(now);
  // Another event may arrive after a back-off has ended and before its Tick.
  if (const auto ready = queue_.next_ready_after(time_.now); ready && *ready <= now)
    schedule_needed_ = true;
  time_.now = now;
  std::visit(
      [this](const auto& e) {
        if (e.unix_ns != 0) time_.unix_ns = e.unix_ns;
        nodes_.set_time(time_.now, time_.unix_ns);
        accounts_.bridge(time_.now, time_.unix_ns);
        resume_backoffs();
        on(e);
      },
      event);
  for (const JobId id : std::exchange(restored_running_, {})) {
    const Job* job = jobs_.find(id);
    if (job != nullptr && is_running(job->state))
      close_open_incidents(incidents_, id, "the coordinator was started anew, and looks again",
                           time_.unix_ns);
  }
  if (schedule_needed_) schedule();
  for (const JobId id : jobs_.forget_oldest(options_.finished_jobs_max))
    actions_.emplace_back(ForgetJob{id});
  emit(out);
}

// Appends the storage actions, then the messages and replies of the step.
void Core::emit(ActionList& out) {
  IncidentBook::Changes incidents = incidents_.take_changes();
  for (Incident& incident : incidents.stored) {
    jobs_.set_incident(incident);
    out.push_back(PersistIncident{std::move(incident)});
  }
  for (const IncidentId id : incidents.forgotten) out.push_back(ForgetIncident{id});
  NodeBook::Changes nodes = nodes_.take_changes();
  for (NodeRecord& node : nodes.stored) out.push_back(PersistNode{std::move(node)});
  for (WorkerName& name : nodes.forgotten) out.push_back(ForgetNode{std::move(name)});
  const JobTable::Changes jobs = jobs_.take_changes();
  for (const JobId id : jobs.stored) {
    Job& job = jobs_.at(id);
    job.account = accounts_.take(id, job.account, time_.now, time_.unix_ns);
    out.push_back(PersistJob{id, job.state, job.reason});
  }
  std::move(actions_.begin(), actions_.end(), std::back_inserter(out));
  actions_.clear();
  for (const JobId id : jobs.published) out.push_back(JobChanged{id});
}

void Core::on(const Tick&) {
  check_leases();
  check_attempts();
  check_stuck();
  check_ladders();
  std::vector<JobId> ending;
  for (const auto& [id, attempt] : attempts_)
    if (jobs_.at(id).state == JobState::kRestarting) ending.push_back(id);
  for (const JobId id : ending) check_end(jobs_.at(id));
  check_nodes();
  schedule_needed_ = schedule_needed_ || any_job_needs_workers();
}

std::optional<Instant> Core::next_deadline() const {
  const Instant now = time_.now;
  std::optional<Instant> next = queue_.next_ready_after(now);
  const auto consider = [&next](std::optional<Instant> t) {
    if (t && (!next || *t < *next)) next = t;
  };
  if (schedule_needed_) consider(now);
  if (!fleet_.all().empty() || !attempts_.empty()) consider(now + options_.heartbeat_interval);
  consider(fleet_.next_deadline());
  for (const auto& [id, attempt] : attempts_) {
    consider(attempt.start_deadline);
    const Job& job = jobs_.at(id);
    if (attempt.victim_deadline && !awaits_a_worker(job, fleet_)) consider(attempt.victim_deadline);
    if (job.state == JobState::kRestarting || is_running(job.state)) {
      const bool climbs = is_running(job.state) && !job.cancel_requested;
      if (climbs || job.state == JobState::kRestarting) consider(attempt.reach.next_check);
      if (climbs && job.state != JobState::kDumping && !attempt.victim_deadline) {
        const Instant due = attempt.progress.hang.due();
        const bool waits = job.state == JobState::kRunning || due > now;
        if (waits && due != HangDetector::kNever) consider(due);
        if (attempt.suspicion.next_dump && *attempt.suspicion.next_dump > now)
          consider(attempt.suspicion.next_dump);
      }
    }
    if (attempt.kill.killed_at) consider(attempt.kill.next_check);
  }
  consider(next_check_of(nodes_, fleet_, queue_.size() > 0, now));
  consider(dumps_.next_deadline());
  return next;
}

Account Core::account_of(const Job& job, Instant now) const {
  return accounts_.current(job.id, job.account, now);
}

NodeUses Core::use_by_worker() const {
  NodeUses uses = uses_of_ranks(jobs_, live_jobs(), fleet_);
  for (const auto& [name, held] : held_by_worker()) uses[name] += held;
  return uses;
}

NodeUses Core::held_by_worker() const { return uses_held(jobs_, fleet_); }

std::vector<std::pair<Rank, double>> Core::straggler_scores(const Job& job,
                                                            size_t count_max) const {
  const auto attempt = attempts_.find(job.id);
  if (attempt == attempts_.end()) return {};
  return attempt->second.progress.straggler_scores(job, count_max);
}

void Core::send(const Worker& worker, WorkerPayload payload) {
  actions_.push_back(SendToWorker{worker.name, worker.incarnation, std::move(payload)});
}

std::vector<JobId> Core::live_jobs() const {
  std::vector<JobId> live;
  for (const auto& [id, attempt] : attempts_) live.push_back(id);
  return live;
}

bool Core::any_job_needs_workers() const {
  return queue_.size() > 0 || std::ranges::any_of(attempts_, [this](const auto& entry) {
           return may_hold_workers(jobs_.at(entry.first));
         });
}

}  // namespace muster::coordinator
