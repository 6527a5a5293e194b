#include "coordinator/core/core.h"

#include <algorithm>
#include <filesystem>

#include <absl/strings/escaping.h>
#include <absl/strings/str_cat.h>

#include "common/absl_view.h"
#include "common/exit_code.h"
#include "coordinator/core/recovery/restart_policy.h"

namespace muster::coordinator {

namespace {

// One spelling for each folder, as far as its path tells: /out, /out/ and /x/../out are the same.
std::string output_key(const JobSpec& spec) {
  std::string key = std::filesystem::path(spec.output_directory).lexically_normal().string();
  while (key.size() > 1 && key.back() == '/') key.pop_back();
  return key;
}

}  // namespace

Core::Core(CoreOptions options, DurableState state, Instant now)
    : options_(std::move(options)),
      store_(state.store),
      request_ids_(std::move(state.request_ids)),
      incidents_(state.incidents, std::move(state.open_incidents)),
      nodes_(std::move(state.nodes)),
      last_job_id_(state.last_job_id),
      now_(now) {
  for (Job& job : state.jobs) restore(std::move(job));
  schedule_needed_ = anybody_wants_workers();
}

void Core::restore(Job job) {
  const JobId id = job.id;
  last_job_id_ = std::max(last_job_id_, id);  // state of an earlier version has no last number
  if (!is_terminal(job.state)) outputs_.emplace(output_key(job.spec), id);
  if (job.state == JobState::kQueued) {
    // Its workers have yet to come back.
    const Instant back = now_ + options_.worker_lease;
    queue_.add(id, job.spec.priority, now_, back + options_.whole_wait, keep_until(job, back));
    if (job.not_before_unix_ns > 0) backed_off_.push_back(id);
  } else if (is_terminal(job.state)) {
    finished_.emplace(job.finished_unix_ns, id);
  } else {
    job.ranks.assign(job.placement.size(), RankState{});
    Launch& launch = launches_[id];
    launch.started = now_;
    if (job.state == JobState::kSuspect || job.state == JobState::kDumping) {
      job.state = JobState::kRunning;
      job.reason = absl::StrCat("the coordinator was started anew, and looks again: ", job.reason);
      persist_.insert(id);
      changed_.insert(id);
    }
    const bool undecided = job.state != JobState::kRestarting && !job.cancel_requested;
    if (undecided && job.state == JobState::kStarting) {
      launch.start_deadline = now_ + options_.start_budget;
    }
    for (const RankExit& exit : job.exits) {
      job.ranks[static_cast<size_t>(exit.rank.value())].life = RankState::Life::kExited;
      if (undecided && !is_success(exit)) launch.victim_deadline = now_ + options_.culprit_wait;
    }
    await_workers_of(job);
    begin_watching(job);
    if (is_running(job.state)) looks_again_.push_back(id);
  }
  open_account(job);
  jobs_.insert_or_assign(id, std::move(job));
}

void Core::await_workers_of(const Job& job) {
  for (const RankPlacement& rank : job.placement) {
    Worker& worker = workers_[rank.worker];
    worker.name = rank.worker;
    worker.incarnation = rank.incarnation;
    worker.last_heard = now_;
  }
}

// Stopped, swapped out or waiting for its disk, this coordinator heard nothing and told nothing: that time counts against
// nobody.
void Core::forgive_own_stall(Instant now) {
  const Duration late = now - (now_ + options_.heartbeat_interval);
  if (late <= Duration::zero()) return;
  reach_from_ = now + options_.unreachable_after;  // who is there has that long to say so
  for (auto& [name, worker] : workers_) {
    worker.last_heard += late;
    worker.last_pages += late;
    if (worker.away_since) *worker.away_since += late;
    worker.check.deadline += late;
    if (worker.strays_since) *worker.strays_since += late;
  }
  queue_.excuse(late);
  for (auto& [id, open] : dumps_) open.deadline += late;
  for (auto& [id, open] : symbols_) open.deadline += late;
  for (auto& [id, launch] : launches_) {
    if (launch.hang) launch.hang->excuse(late);
    launch.started += late;
    if (launch.roomy_since) *launch.roomy_since += late;
    launch.suspected += late;
    launch.evidence += late;
    launch.progress_then += late;
    if (launch.next_look) *launch.next_look += late;
    if (launch.doubt) launch.doubt->excuse(late);
    if (launch.start_deadline) *launch.start_deadline += late;
    if (launch.victim_deadline) *launch.victim_deadline += late;
    if (launch.killed_at) *launch.killed_at += late;
    launch.stuck_look += late;
  }
}

// Of an earlier life, once it is known what time it is. No back-off is longer than the longest, whatever clocks say.
void Core::resume_backoffs() {
  if (unix_ns_ == 0) return;
  for (const JobId id : std::exchange(backed_off_, {})) {
    const auto found = jobs_.find(id);
    if (found == jobs_.end() || found->second.state != JobState::kQueued) continue;
    const Job& job = found->second;
    const Duration left = std::clamp(Duration(job.not_before_unix_ns - unix_ns_), Duration::zero(),
                                     std::max({kBackoffMax, kPreemptedDelay, kMendedDelayMax}));
    queue_.remove(id, job.spec.priority);
    const Instant back = now_ + std::max(left, options_.worker_lease);
    queue_.add(id, job.spec.priority, now_ + left, back + options_.whole_wait,
               keep_until(job, back));
  }
}

void Core::step(const Event& event, Instant now, ActionList& out) {
  forgive_own_stall(now);
  // A back-off that ends unseen, because whatever came meanwhile is heard before the Tick.
  if (const auto ready = queue_.next_ready_after(now_); ready && *ready <= now)
    schedule_needed_ = true;
  now_ = now;
  std::visit(
      [this](const auto& e) {
        if (e.unix_ns != 0) unix_ns_ = e.unix_ns;
        nodes_.set_time(now_, unix_ns_);
        accounts_.bridge(now_, unix_ns_);
        resume_backoffs();
        on(e);
      },
      event);
  for (const JobId id : std::exchange(looks_again_, {})) {
    const auto job = jobs_.find(id);
    if (job != jobs_.end() && is_running(job->second.state))
      close_incidents(job->second, "the coordinator was started anew, and looks again");
  }
  if (schedule_needed_) schedule();
  forget_oldest();
  const size_t before = out.size();
  incidents_.store(out);
  for (size_t i = before; i < out.size(); ++i) {
    if (const auto* stored = std::get_if<PersistIncident>(&out[i])) note_incident(stored->incident);
  }
  NodeBook::Changes nodes = nodes_.take_changes();
  for (NodeRecord& node : nodes.stored) out.push_back(PersistNode{std::move(node)});
  for (WorkerName& name : nodes.forgotten) out.push_back(ForgetNode{std::move(name)});
  for (const JobId id : persist_) {
    if (const auto it = jobs_.find(id); it != jobs_.end()) {
      it->second.account = accounts_.take(id, it->second.account, now_, unix_ns_);
      out.push_back(PersistJob{id, it->second.state, it->second.reason});
    }
  }
  std::move(actions_.begin(), actions_.end(), std::back_inserter(out));
  for (const JobId id : changed_) out.push_back(JobChanged{id});
  actions_.clear();
  persist_.clear();
  changed_.clear();
}

// Who looks at a job sees the newest of its incidents, in the words of now.
void Core::note_incident(const Incident& incident) {
  const auto job = jobs_.find(incident.job);
  if (job == jobs_.end() || incident.id < job->second.incident.id) return;
  IncidentNote note{incident.id, incident.sentence};
  if (job->second.incident == note) return;
  job->second.incident = std::move(note);
  persist_.insert(incident.job);
  changed_.insert(incident.job);
}

void Core::on(const JobSubmitted& event) {
  absl::Status status = check_request_id(event.request_id, options_.limits);
  status.Update(check_spec(event.spec, options_.limits));
  if (!status.ok()) {
    actions_.push_back(Reply{event.token, std::move(status), JobId{}});
    return;
  }
  if (!event.request_id.empty()) {
    if (const auto it = request_ids_.find(event.request_id); it != request_ids_.end()) {
      actions_.push_back(Reply{event.token, absl::OkStatus(), it->second});
      return;
    }
  }
  if (absl::Status taken = check_output_is_free(event.spec); !taken.ok()) {
    actions_.push_back(Reply{event.token, std::move(taken), JobId{}});
    return;
  }
  if (queue_.size() >= options_.queued_jobs_max) {
    actions_.push_back(
        Reply{event.token,
              absl::ResourceExhaustedError(
                  absl::StrCat("the queue is full: ", queue_.size(),
                               " jobs wait; cancel some, or submit again when some have started")),
              JobId{}});
    return;
  }
  Job job;
  last_job_id_ = JobId(last_job_id_.value() + 1);
  job.id = last_job_id_;
  job.spec = event.spec;
  job.submitted_unix_ns = event.unix_ns;
  const JobId id = job.id;
  Job& stored = jobs_.emplace(id, std::move(job)).first->second;
  open_account(stored);
  outputs_.emplace(output_key(stored.spec), id);
  note(stored, "submitted; waits for its turn");
  queue_.add(id, stored.spec.priority, now_);
  schedule_needed_ = true;
  actions_.emplace_back(PersistLastJobId{id});
  if (!event.request_id.empty()) {
    request_ids_.emplace(event.request_id, id);
    actions_.push_back(PersistRequestId{event.request_id, id});
  }
  actions_.push_back(Reply{event.token, absl::OkStatus(), id});
}

// Two jobs that write checkpoints to one folder would overwrite and delete each other's.
absl::Status Core::check_output_is_free(const JobSpec& spec) const {
  const std::string key = output_key(spec);
  const auto it = outputs_.lower_bound({key, JobId(0)});
  if (it == outputs_.end() || it->first != key) return absl::OkStatus();
  const Job& other = jobs_.at(it->second);
  return absl::FailedPreconditionError(absl::StrCat(
      "spec.output_directory is \"", absl::CHexEscape(spec.output_directory), "\", where job ",
      other.id.value(), " (", other.spec.name, "), which is ", av(job_state_name(other.state)),
      ", writes: give this job another run_name, or wait until that one has ended or cancel it"));
}

void Core::release_output(const Job& job) { outputs_.erase({output_key(job.spec), job.id}); }

// NotFound, or FailedPrecondition for one that has ended.
absl::StatusOr<Job*> Core::active_job(JobId id) {
  const auto it = jobs_.find(id);
  if (it == jobs_.end()) return absl::NotFoundError(absl::StrCat("there is no job ", id.value()));
  if (!is_terminal(it->second.state)) return &it->second;
  return absl::FailedPreconditionError(absl::StrCat(
      "job ", id.value(), " has already ended: it is ", av(job_state_name(it->second.state))));
}

void Core::on(const JobCheckpointRequested& event) {
  const auto job = active_job(event.job);
  const absl::Status status = job.ok() ? ask_for_checkpoint(**job) : job.status();
  actions_.push_back(Reply{event.token, status, event.job});
}

void Core::on(const JobCancelRequested& event) {
  const auto active = active_job(event.job);
  if (!active.ok()) {
    actions_.push_back(Reply{event.token, active.status(), event.job});
    return;
  }
  Job& job = **active;
  actions_.push_back(Reply{event.token, absl::OkStatus(), event.job});
  if (job.state == JobState::kQueued) {
    queue_.remove(job.id, job.spec.priority);
    schedule_needed_ = true;
    job.cancel_requested = true;
    finish(job, JobState::kCancelled, to_int(ExitCode::kInterrupted),
           "cancelled before it was started");
    return;
  }
  Launch& launch = launches_[job.id];
  const bool first = !job.cancel_requested;
  if (!first && !event.force) return;
  job.cancel_requested = true;
  launch.start_deadline.reset();  // how the attempt ends does not matter any more
  launch.victim_deadline.reset();
  leave_ladder(job);
  account(job, JobTurn::kCancelled);
  end_doubt(job, "none: the job was cancelled", "the job was cancelled");
  if (job.state == JobState::kRestarting && !event.force) {
    note(job, "cancelled during a restart; waits for the last ranks to be reaped");
    return;
  }
  const Duration grace = event.force ? Duration::zero() : options_.cancel_grace;
  note(job, event.force ? "cancelled by force; its ranks are killed"
                        : "cancelled; its ranks are asked to save a checkpoint and leave");
  stop_ranks(job, grace, "the job was cancelled");
  settle(job);
}

void Core::on(const Tick&) {
  check_leases();
  check_launch_deadlines();
  check_stuck();
  check_ladders();
  check_ends();
  check_nodes();
  schedule_needed_ = schedule_needed_ || anybody_wants_workers();
}

std::optional<Instant> Core::next_deadline() const {
  std::optional<Instant> next = queue_.next_ready_after(now_);
  const auto consider = [&next](Instant t) {
    if (!next || t < *next) next = t;
  };
  if (schedule_needed_) consider(now_);
  if (!workers_.empty() || !launches_.empty()) consider(now_ + options_.heartbeat_interval);
  for (const auto& [name, worker] : workers_) {
    consider(worker.last_heard + options_.worker_lease);
    if (worker.strays_since) consider(*worker.strays_since + options_.torn_down_within);
  }
  for (const auto& [id, launch] : launches_) {
    if (launch.start_deadline) consider(*launch.start_deadline);
    const Job& job = jobs_.at(id);
    if (launch.victim_deadline && !awaits_a_worker(job)) consider(*launch.victim_deadline);
    if (const auto look = ladder_deadline(job, launch)) consider(*look);
    if (launch.killed_at) consider(launch.stuck_look);
  }
  if (const auto look = nodes_deadline()) consider(*look);
  for (const auto& [id, open] : dumps_) consider(open.deadline);
  for (const auto& [id, open] : symbols_) consider(open.deadline);
  return next;
}

void Core::note(Job& job, std::string reason) {
  job.reason = std::move(reason);
  changed(job);
}

void Core::changed(const Job& job) {
  persist_.insert(job.id);
  changed_.insert(job.id);
}

void Core::send(const Worker& worker, WorkerPayload payload) {
  actions_.push_back(SendToWorker{worker.name, worker.incarnation, std::move(payload)});
}

void Core::forget_oldest() {
  while (finished_.size() > options_.finished_jobs_max) {
    const JobId id = finished_.begin()->second;
    finished_.erase(finished_.begin());
    std::erase_if(request_ids_, [id](const auto& entry) { return entry.second == id; });
    jobs_.erase(id);
    persist_.erase(id);
    changed_.erase(id);
    actions_.emplace_back(ForgetJob{id});
  }
}

}  // namespace muster::coordinator
