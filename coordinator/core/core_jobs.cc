// Client requests about jobs, and the queue pass.
#include <algorithm>

#include <absl/strings/str_cat.h>

#include "common/process/exit_code.h"
#include "common/text/absl_view.h"
#include "coordinator/core/core.h"
#include "coordinator/core/placement/hosts.h"
#include "coordinator/core/placement/placement_pass.h"
#include "coordinator/core/records/sizes.h"

namespace muster::coordinator {
namespace {

// Returns waiting jobs, and running jobs that may reserve workers.
std::vector<JobQueue::Entry> entries_to_visit(const JobQueue& queue, const JobTable& jobs,
                                              const std::vector<JobId>& live) {
  std::vector<JobQueue::Entry> entries = queue.in_order();
  for (const JobId id : live) {
    const Job& job = jobs.at(id);
    if (may_hold_workers(job)) entries.push_back({job.spec.priority, id, {}, {}, {}});
  }
  return entries;
}

// Returns whether the job gave up its nodes to change its revision, and all of them still take
// ranks: other waiting jobs must not take them.
bool has_its_nodes(const Job& job, const Fleet& fleet, const NodeBook& nodes) {
  return job.state == JobState::kQueued && job.keeps_nodes &&
         std::ranges::all_of(job.previous_nodes, [&](const WorkerName& name) {
           const Worker* worker = fleet.find(name);
           return worker != nullptr && worker->connected && fleet.takes_ranks(*worker) &&
                  nodes.is_sound(name);
         });
}

void hold(JobTable& jobs, Job& job, std::vector<WorkerName> names) {
  if (job.held == names) return;
  job.held = std::move(names);
  jobs.publish(job.id);
}

}  // namespace

void Core::on(const JobSubmitted& event) {
  const auto reply = [&](absl::Status status, JobId id) {
    actions_.push_back(Reply{event.token, std::move(status), id});
  };
  absl::Status status = check_request_id(event.request_id, options_.limits);
  status.Update(check_spec(event.spec, options_.limits));
  if (!status.ok()) return reply(std::move(status), JobId{});
  if (!event.request_id.empty()) {
    const auto known = jobs_.request_ids().find(event.request_id);
    if (known != jobs_.request_ids().end()) {
      const JobId id = known->second;
      if (const Job* job = jobs_.find(id); job != nullptr)
        status = check_access(event.caller, job_owner(job->spec), id, "submit it again");
      return reply(status, status.ok() ? id : JobId{});
    }
  }
  JobSpec spec = event.spec;
  if (status = set_owner(event.caller, spec); !status.ok())
    return reply(std::move(status), JobId{});
  if (status = jobs_.check_output_is_free(spec); !status.ok())
    return reply(std::move(status), JobId{});
  absl::StatusOr<std::vector<JobDependency>> unmet = unmet_dependencies(spec, jobs_);
  if (!unmet.ok()) return reply(unmet.status(), JobId{});
  if (status = check_policy(spec); !status.ok()) return reply(std::move(status), JobId{});
  if (queue_.size() >= options_.queued_jobs_max) {
    return reply(absl::ResourceExhaustedError(absl::StrCat(
                     "the queue is full: ", queue_.size(),
                     " jobs wait; cancel some, or submit again when some have started")),
                 JobId{});
  }
  const size_t bytes = bytes_of(spec);
  if (jobs_.unfinished_bytes() + bytes > options_.queued_bytes_max) {
    return reply(
        absl::ResourceExhaustedError(absl::StrCat(
            "the queue is full: the specs of its jobs have ", jobs_.unfinished_bytes(),
            " bytes and this one ", bytes, ", together at most ", options_.queued_bytes_max,
            "; cancel some jobs, or submit again when some have ended")),
        JobId{});
  }
  Job& job = jobs_.submit(std::move(spec), event.request_id, event.unix_ns);
  accounts_.restore(job, time_.now);
  job.waits_for = *std::move(unmet);
  dependents_.add(job);
  jobs_.note(job, job.waits_for.empty() ? "submitted; waits for a placement"
                                        : dependencies_text(job.waits_for));
  queue_.add(job.id, job.spec.priority, time_.now);
  schedule_needed_ = true;
  actions_.emplace_back(PersistLastJobId{job.id});
  if (!event.request_id.empty()) actions_.push_back(PersistRequestId{event.request_id, job.id});
  reply(absl::OkStatus(), job.id);
}

// Requests the checkpoint only from rank 0: its vote makes all ranks save after the same step.
void Core::on(const JobCheckpointRequested& event) {
  const auto reply = [&](absl::Status status) {
    actions_.push_back(Reply{event.token, std::move(status), event.job});
  };
  const auto found = jobs_.unfinished(event.job, event.caller, "request its checkpoint");
  if (!found.ok()) return reply(found.status());
  const Job& job = **found;
  const std::string name = absl::StrCat("job ", job.id.value());
  if (!is_running(job.state) || job.cancel_requested) {
    const std::string state =
        job.cancel_requested ? "being cancelled"
                             : absl::StrCat("not running (", av(job_state_name(job.state)), ")");
    return reply(absl::FailedPreconditionError(
        absl::StrCat(name, " is ", state, "; only a job that trains can save a checkpoint")));
  }
  const RankPlacement& placed = job.placement.front();
  const RankState& rank = job.ranks.front();
  if (rank.life != RankState::Life::kUp || rank.checkpoints.on_request == 0) {
    return reply(absl::FailedPreconditionError(absl::StrCat(
        name,
        " saves no checkpoint on request: its rank 0 has not begun to train, or runs with "
        "enable_checkpointing=False, or is a program that does not support it")));
  }
  const Worker* worker = fleet_.find(placed.worker);
  if (worker == nullptr || !worker->connected) {
    return reply(absl::FailedPreconditionError(absl::StrCat(
        name, ": worker ", placed.worker.value(), " of rank 0 is not connected now; try again")));
  }
  attempts_.at(job.id).checkpoint_after = std::max<int64_t>(rank.step, 0);
  actions_.push_back(send_action(*worker, SendSaveCheckpoint{job.id, job.attempt, placed.rank}));
  reply(absl::OkStatus());
}

void Core::on(const JobCancelRequested& event) {
  const auto found = jobs_.unfinished(event.job, event.caller, "cancel it");
  actions_.push_back(Reply{event.token, found.status(), event.job});
  if (!found.ok()) return;
  Job& job = **found;
  if (job.state == JobState::kQueued) {
    queue_.remove(job.id, job.spec.priority);
    schedule_needed_ = true;
    job.cancel_requested = true;
    finish(job, JobState::kCancelled, to_int(ExitCode::kInterrupted),
           "cancelled before it was started");
    return;
  }
  LiveAttempt& attempt = attempts_.at(job.id);
  const bool first = !job.cancel_requested;
  if (!first && !event.force) return;
  job.cancel_requested = true;
  take_step(job, attempt.ladder.leave(job, dumps_));
  accounts_.enter(job, JobTransition::kCancelled, incidents_, time_);
  attempt.ladder.close_inconclusive(incidents_, "none: the job was cancelled",
                                    "the job was cancelled", time_.unix_ns);
  if (job.state == JobState::kRestarting && !event.force) {
    jobs_.note(job, "cancelled during a restart; waits for the last ranks to be reaped");
    return;
  }
  const Duration grace = event.force ? Duration::zero() : options_.cancel_grace;
  jobs_.note(job, event.force ? "cancelled by force; its ranks are killed"
                              : "cancelled; its ranks save a checkpoint and exit");
  attempt.expect_ends(job, grace, options_, time_.now);
  append(actions_, orders_to_stop(job, attempt.ranks, fleet_, options_, "the job was cancelled"));
  settle(job);
}

void Core::schedule() {
  schedule_needed_ = false;
  last_pass_ = time_.now;
  if (fleet_.is_cut_off()) return note_outage();  // end_outage() requests the next pass
  const std::vector<JobId> live = attempts_.jobs();
  if (!any_job_needs_workers(queue_, jobs_, live)) return;
  PlacementPass pass(options_, time_, jobs_, live, fleet_, nodes_);
  RunningUse running(policy_ ? &*policy_ : nullptr, jobs_, queue_, live, policy_ && has_gpus());
  const auto hold_more = [&](Job& job) {
    if (!may_hold_workers(job)) return;
    PlacementPass::More more = pass.hold_more_nodes(job);
    hold(jobs_, job, std::move(more.held));
    if (job.cancel_requested) return;
    if (!attempts_.at(job.id).growth.is_due(job, more.nodes, options_, time_.now)) return;
    ++job.resizes;
    fault(job, growth_fault(job, more.nodes, time_.unix_ns), options_.grow_grace);
  };
  bool has_ends = false;
  std::vector<JobQueue::Entry> entries = entries_to_visit(queue_, jobs_, live);
  set_fair_shares(entries);
  std::ranges::sort(entries, JobQueue::precedes);
  std::ranges::stable_partition(entries, [&](const JobQueue::Entry& entry) {
    return has_its_nodes(jobs_.at(entry.job), fleet_, nodes_);
  });
  for (const JobQueue::Entry& entry : entries) {
    Job& job = jobs_.at(entry.job);
    if (job.state != JobState::kQueued) {
      hold_more(job);
      continue;
    }
    if (entry.not_before > time_.now) {
      hold(jobs_, job, pass.hold_own_nodes(job));
      continue;
    }
    if (!job.waits_for.empty()) continue;
    RunningUse::Wait wait = running.why_waits(job);
    const bool has_quota = wait.text.empty();
    std::optional<Duration> left;  // for backfill only
    if (pass.is_blocked() && (has_quota || wait.may_backfill)) left = time_left(job);
    if (!has_quota && !left) {
      running.reserve(job, wait.reserve);
      if (!wait.backfilled.empty()) pass.claim_from(job, all_ended_by(wait.backfilled));
      if (wait.text != job.reason) jobs_.note(job, std::move(wait.text));
      continue;
    }
    if (left && !has_ends) {
      has_ends = true;
      pass.set_ends(ends_by_limit());
    }
    PlacementPass::Decision decision =
        has_quota ? pass.place(job, entry, left) : pass.place_before_claims(job, *left);
    for (const WorkerName& name : decision.checks)
      append(actions_, checks_.request(fleet_.at(name), time_.now));
    if (decision.ranks.empty()) {
      if (decision.has_claim) running.reserve(job, RunningUse::Reserve::kNodes);
      if (!has_quota) decision.text = std::move(wait.text);
      hold(jobs_, job, std::move(decision.held));
      if (decision.text != job.reason) jobs_.note(job, std::move(decision.text));
      continue;
    }
    job.is_backfilled = decision.is_backfilled;
    if (job.attempt == Attempt(0)) running.add(job);
    start(job, std::move(decision.ranks));
    if (const auto end = latest_end(job); end && has_ends) pass.add_end(job.id, *end);
    if (!decision.text.empty()) jobs_.note(job, job.reason + decision.text);
    hold_more(job);
  }
}

// Gives waiting jobs the reason why none is placed.
void Core::note_outage() {
  constexpr std::string_view kReason = "waits until a worker reports: all are silent";
  for (const JobQueue::Entry& entry : queue_.in_order()) {
    Job& job = jobs_.at(entry.job);
    if (entry.not_before <= time_.now && job.waits_for.empty() && job.reason != kReason)
      jobs_.note(job, std::string(kReason));
  }
}

void Core::start(Job& job, std::vector<RankPlacement> placement) {
  queue_.remove(job.id, job.spec.priority);
  job.held.clear();
  job.attempt = Attempt(job.attempt.value() + 1);
  jobs_.launch(job.id);
  job.state = JobState::kStarting;
  job.placement = std::move(placement);
  job.exits.clear();
  job.stop_grace = Duration::zero();
  job.not_before_unix_ns = 0;
  job.keeps_nodes = false;
  job.ranks.assign(job.placement.size(), RankState{});
  job.started_unix_ns = time_.unix_ns;
  job.up_unix_ns = 0;
  if (job.first_started_unix_ns == 0) job.first_started_unix_ns = time_.unix_ns;
  const Worker& home = fleet_.at(job.placement.front().worker);
  job.rendezvous_address = home.rendezvous_address;
  job.program_port =
      job.spec.is_program() ? free_program_port(job, jobs_, attempts_.jobs(), home) : 0;
  attempts_.begin(job, options_, time_.now);
  accounts_.enter(job, JobTransition::kStarted, incidents_, time_);
  jobs_.note(job, start_text(job, fleet_, time_.unix_ns));
  const RanksByWorker& ranks = attempts_.at(job.id).ranks;
  const std::shared_ptr<const JobSpec> spec = spec_of_attempt(job);
  const WorkerName* previous = nullptr;
  for (const RankPlacement& rank : job.placement) {
    if (previous == nullptr || rank.worker != *previous)
      actions_.push_back(order_to_start(job, spec, ranks, fleet_.at(rank.worker)));
    previous = &rank.worker;
  }
}

}  // namespace muster::coordinator
