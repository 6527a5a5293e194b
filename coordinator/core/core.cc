#include "coordinator/core/core.h"

#include <algorithm>
#include <type_traits>

#include <absl/strings/str_cat.h>

#include "coordinator/core/attempt/endings.h"
#include "coordinator/core/fleet/pending_node_checks.h"
#include "coordinator/core/placement/hosts.h"
#include "coordinator/core/placement/placement_pass.h"

namespace muster::coordinator {
namespace {

// Returns the length of the coordinator's own stall between `last`, the time of the last step, and
// `now`; zero if there was none. `expected`: the time at which the next step was expected; nullopt:
// no step was expected. A coordinator that was stopped, swapped out or blocked by its disk received
// and sent nothing, so this time does not count against workers or jobs. While the core waits for
// workers or ranks, a Tick is due within a heartbeat interval. Otherwise the core may be idle for a
// long time, and only a gap after a due Tick is a stall.
Duration own_stall(Instant last, std::optional<Instant> expected, Duration heartbeat_interval,
                   Instant now) {
  if (!expected) return Duration::zero();
  return now - (std::max(last, *expected) + heartbeat_interval);
}

}  // namespace

Core::Core(CoreOptions options, DurableState state, Instant now)
    : options_(std::move(options)),
      store_(state.store),
      left_at_(state.left_at),
      jobs_(std::move(state.request_ids), state.last_job_id),
      fleet_(options_),
      nodes_(std::move(state.nodes)),
      incidents_(state.incidents, std::move(state.open_incidents)),
      deep_checks_(std::move(state.deep_checks)),
      time_{now, 0} {
  for (Job& stored : state.jobs) {
    Job& job = jobs_.restore(std::move(stored));
    if (job.state == JobState::kQueued) {
      queue_.restore(job, options_, now);
      dependents_.add(job);
    } else if (is_live(job.state)) {
      if (job.state == JobState::kSuspect || job.state == JobState::kDumping)
        jobs_.note(
            job, absl::StrCat("the coordinator was restarted and takes new samples: ", job.reason));
      attempts_.restore(job, options_, now);
      fleet_.await_workers_of(job, now);
      if (is_running(job.state)) restored_running_.push_back(job.id);
    }
    if (is_terminal(job.state)) continue;
    if (job.recovering != IncidentId(0)) incidents_.await(job.recovering);
    accounts_.restore(job, now);
  }
  usages_.restore(state.usages);
  policy_text_ = std::move(state.queue_policy);
  fleet_.begin_waiting(state.last_job_id > JobId(0), now);
  schedule_needed_ = any_job_needs_workers(queue_, jobs_, attempts_.jobs());
}

void Core::step(const Event& event, Instant now, ActionList& out) {
  process(event, now);
  if (schedule_needed_) schedule();
  emit(out);
}

void Core::take(const Event& event, Instant now, ActionList& out) {
  process(event, now);
  emit(out);
}

void Core::place_jobs(ActionList& out) {
  if (!schedule_needed_) return;
  schedule();
  emit(out);
}

void Core::process(const Event& event, Instant now) {
  // A coordinator without workers and ranks may be idle until a Tick is due.
  const bool is_idle = fleet_.all().empty() && attempts_.all().empty();
  const std::optional<Instant> expected = is_idle ? next_deadline() : time_.now;
  const Duration stall = own_stall(time_.now, expected, options_.heartbeat_interval, now);
  if (stall > Duration::zero()) {
    fleet_.excuse(stall, now);
    dumps_.excuse(stall);
    excuse(stall, now);
  }
  // Another event may arrive after a back-off has ended and before its Tick.
  if (const auto ready = queue_.next_ready_after(time_.now); ready && *ready <= now)
    schedule_needed_ = true;
  time_.now = now;
  std::visit(
      [this]<class E>(const E& e) {
        if (e.unix_ns != 0) time_.unix_ns = e.unix_ns;
        nodes_.set_time(time_.now, time_.unix_ns);
        accounts_.bridge(time_.now, time_.unix_ns);
        queue_.resume_backoffs(jobs_, options_, time_);
        // At each event, because the message that ends an outage may arrive before the next Tick.
        const bool was_cut_off = fleet_.is_cut_off();
        fleet_.watch_outage(time_.now);
        if (fleet_.is_cut_off() && !was_cut_off) {
          stop_sampling();
          schedule_needed_ = true;  // waiting jobs get another reason
        }
        // on(WorkerRegistered) does the same once it has accepted the worker.
        if constexpr (requires { e.incarnation; } && !std::is_same_v<E, WorkerDisconnected> &&
                      !std::is_same_v<E, WorkerRegistered>) {
          if (fleet_.current(e.worker, e.incarnation) != nullptr) end_outage(e.worker);
        }
        on(e);
      },
      event);
  release_dependents();
  for (const JobId id : std::exchange(restored_running_, {})) {
    const Job* job = jobs_.find(id);
    if (job != nullptr && is_running(job->state))
      close_open_incidents(incidents_, *job, "the coordinator was restarted and takes new samples",
                           time_.unix_ns);
  }
}

// Excludes a time until `now` in which no worker could report from the deadlines of jobs.
void Core::excuse(Duration time, Instant now) {
  queue_.excuse(time);
  attempts_.excuse(time, now);
  if (sweep_) sweep_->excuse(time);
}

// Appends the storage actions, then the messages and replies of the step.
void Core::emit(ActionList& out) {
  for (const JobId id :
       jobs_.forget_oldest(options_.finished_jobs_max, options_.finished_bytes_max))
    actions_.emplace_back(ForgetJob{id});
  IncidentBook::Changes incidents = incidents_.take_changes();
  for (Incident& incident : incidents.stored) {
    jobs_.set_incident(incident);
    out.push_back(PersistIncident{std::move(incident)});
  }
  for (const IncidentId id : incidents.forgotten) out.push_back(ForgetIncident{id});
  NodeBook::Changes nodes = nodes_.take_changes();
  for (NodeRecord& node : nodes.stored) out.push_back(PersistNode{std::move(node)});
  for (WorkerName& name : nodes.forgotten) out.push_back(ForgetNode{std::move(name)});
  for (auto& [name, checks] : deep_checks_.take_changes())
    out.push_back(PersistDeepChecks{name, std::move(checks)});
  const JobTable::Changes jobs = jobs_.take_changes();
  for (const JobId id : jobs.stored) {
    Job& job = jobs_.at(id);
    job.account = accounts_.take(id, job.account, time_.now, time_.unix_ns);
    out.push_back(PersistJob{id, job.state, job.reason});
  }
  for (const auto& [id, position] : jobs.exits) {
    const Job* job = jobs_.find(id);
    // The attempt may have ended in this step.
    if (job != nullptr && position < job->exits.size())
      out.push_back(PersistExit{id, job->attempt, position, job->exits[position]});
  }
  std::move(actions_.begin(), actions_.end(), std::back_inserter(out));
  actions_.clear();
  for (const JobId id : jobs.published) out.push_back(JobChanged{id});
}

void Core::on(const Tick& event) {
  for (const WorkerName& name : event.unread) fleet_.postpone(name, time_.now);
  if (event.is_behind) fleet_.judge_no_silence(time_.now);
  // While no worker reports, the passage of time is no evidence about the attempts.
  const bool is_cut_off = fleet_.is_cut_off();
  for (const WorkerName& name : fleet_.take_expired(time_.now)) {
    const Instant end = renewed_lease_end(fleet_.at(name));
    if (end > time_.now)
      fleet_.visit_by(end);
    else
      end_lease_of(name, silence_of_lease(fleet_.at(name)));
  }
  adapt_pace(WorkerName());
  for (const JobId id : attempts_.jobs()) {
    Job& job = jobs_.at(id);
    if (!is_undecided(job) || is_cut_off) continue;
    std::optional<Ending> ending =
        ending_of_deadlines(job, attempts_.at(id), fleet_, options_, time_);
    if (!ending) continue;
    fault(job, std::move(ending->fault), ending->grace);
    settle(job);
  }
  check_stuck();
  drain_nodes();
  end_at_time_limits();
  charge_usage();
  end_silent_trials();
  for (const JobId id : attempts_.jobs()) {
    Job& job = jobs_.at(id);
    if (is_running(job.state)) check_reach(job);
    if (is_running(job.state)) climb(job);
  }
  for (const DumpId id : dumps_.requested()) {
    const JobId job = dumps_.find(id)->dump.job();
    append(actions_,
           dumps_.answer_if_over(id, fleet_, attempts_.unreachable(job), options_, time_.now));
  }
  append(actions_, dumps_.end_late_lookups(incidents_, time_.now));
  for (const JobId id : attempts_.jobs())
    if (Job& job = jobs_.at(id); !is_undecided(job)) check_end(job);
  if (!is_cut_off) append(actions_, checks_.run_due(nodes_, fleet_, time_.now));
  expire_sweep(event);
  advance_sweep();
  sweep_idle_nodes();
  // Only the passage of time may have changed the result of a queue pass, so a pass over many jobs
  // and workers is not repeated at each deadline of a rank or a worker. Back-offs and reservations
  // that end make a pass in any case.
  constexpr size_t kShortPass = 256;
  const bool is_pass_due = queue_.size() + fleet_.all().size() <= kShortPass ||
                           last_pass_ + options_.heartbeat_interval <= time_.now;
  if (is_pass_due && any_job_needs_workers(queue_, jobs_, attempts_.jobs()))
    schedule_needed_ = true;
}

std::optional<Instant> Core::next_deadline() const {
  const Instant now = time_.now;
  std::optional<Instant> next = queue_.next_ready_after(now);
  const auto consider = [&next](std::optional<Instant> t) {
    if (t && (!next || *t < *next)) next = t;
  };
  if (schedule_needed_) consider(now);
  if (!fleet_.all().empty() || !attempts_.all().empty())
    consider(now + options_.heartbeat_interval);
  consider(fleet_.next_deadline());
  if (!fleet_.is_cut_off()) {
    consider(attempts_.next_deadline(jobs_, fleet_, now));
    consider(next_check_of(nodes_, fleet_, queue_.size() > 0, now));
  }
  consider(dumps_.next_deadline());
  // Afterwards each heartbeat interval has a Tick.
  if (const auto late = sweep_ ? sweep_->deadline() : std::nullopt; late && *late >= now)
    consider(*late + Duration(1));
  return next;
}

Account Core::account_of(const Job& job, Instant now) const {
  return accounts_.current(job.id, job.account, now);
}

NodeUses Core::use_by_worker() const {
  NodeUses uses = uses_of_ranks(jobs_, attempts_.jobs(), fleet_);
  for (const auto& [name, held] : held_by_worker()) uses[name] += held;
  return uses;
}

NodeUses Core::held_by_worker() const { return uses_held(jobs_, fleet_); }

NodeUse Core::use_of(const WorkerName& worker) const {
  NodeUse use = rank_use_on(jobs_, attempts_.jobs(), fleet_, worker);
  use += held_of(worker);
  return use;
}

NodeUse Core::held_of(const WorkerName& worker) const { return held_use_on(jobs_, fleet_, worker); }

std::optional<AttemptRecord> Core::attempt_of(const Job& job) const {
  const LiveAttempt* attempt = attempts_.find(job.id);
  return attempt == nullptr ? std::nullopt : std::optional(attempt->record(job));
}

std::vector<std::pair<Rank, double>> Core::straggler_scores(const Job& job,
                                                            size_t count_max) const {
  const LiveAttempt* attempt = attempts_.find(job.id);
  if (attempt == nullptr) return {};
  return attempt->progress.straggler_scores(job, count_max);
}

}  // namespace muster::coordinator
