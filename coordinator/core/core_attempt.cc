// The life of one attempt: its ranks come up and end, and a fault or the last exit ends it.
#include <algorithm>

#include <absl/strings/str_cat.h>

#include "common/process/job_exit_code.h"
#include "common/text/absl_view.h"
#include "coordinator/core/attempt/endings.h"
#include "coordinator/core/attempt/fault_incident.h"
#include "coordinator/core/core.h"
#include "coordinator/core/fleet/pending_node_checks.h"
#include "coordinator/core/incident/recovery.h"
#include "coordinator/core/placement/hosts.h"
#include "coordinator/core/records/sizes.h"
#include "coordinator/core/recovery/avoidance.h"
#include "coordinator/core/recovery/log_verdict.h"
#include "coordinator/core/recovery/restart_policy.h"
#include "coordinator/core/recovery/revisions.h"
#include "coordinator/core/recovery/slow_nodes.h"
#include "coordinator/core/recovery/time_limit.h"

namespace muster::coordinator {

void Core::rank_up(Job& job, Rank rank) {
  if (job.ranks[static_cast<size_t>(rank.value())].life != RankState::Life::kAssigned) return;
  LiveAttempt& attempt = attempts_.at(job.id);
  attempt.bring_up(job, rank);
  if (!attempt.all_were_up() || !is_undecided(job)) return;
  attempt.start_deadline.reset();
  if (job.state != JobState::kStarting) return;
  job.state = JobState::kRunning;
  job.up_unix_ns = time_.unix_ns;
  attempt.up_at = time_.now;
  close_open_incidents(incidents_, job, absl::StrCat("attempt ", job.attempt.value(), " runs"),
                       time_.unix_ns);
  accounts_.enter(job, JobTransition::kUp, incidents_, time_);
  // An idle worker sends heartbeats less often, so its pauses without ranks do not predict its
  // pauses with ranks.
  for (const auto& [name, ranks] : attempt.ranks)
    if (Worker* worker = fleet_.find(name)) worker->longest_pause = Duration::zero();
  jobs_.note(job,
             absl::StrCat("attempt ", job.attempt.value(), ": every rank is up",
                          nodes_now(job) < job.spec.nodes ? absl::StrCat(", on ", size_text(job))
                                                          : std::string()));
}

// Records the end of a rank that its worker reports.
void Core::end_rank(Job& job, RankExit exit, const WorkerName& worker) {
  rank_up(job, exit.rank);  // a rank that exits was up
  LiveAttempt& attempt = attempts_.at(job.id);
  attempt.end_rank(job, exit.rank);
  int64_t& step = job.ranks[static_cast<size_t>(exit.rank.value())].step;
  step = std::max(step, exit.last_step);
  const ExitMeaning meaning = meaning_of(exit, worker, job, attempt, fleet_, time_.now);
  if (meaning == ExitMeaning::kVictim) {
    attempt.reach.next_check = time_.now;  // an unreachable worker may explain the exit
    // Only the first of up to 100,000 victims changes the job's reason: each change stores the job.
    if (!attempt.victim_deadline) {
      attempt.victim_deadline = time_.now + options_.culprit_wait;
      jobs_.note(job, absl::StrCat("rank ", exit.rank.value(),
                                   is_victim(exit) || is_witness(exit)
                                       ? " lost a peer"
                                       : " failed while a peer's worker is out of reach",
                                   "; waits for the report of the rank that died"));
    }
  }
  jobs_.add_exit(job, std::move(exit));
  if (meaning == ExitMeaning::kCulprit) {
    Ending ending = ending_of_exits(job, attempt.crash, options_, time_.unix_ns);
    fault(job, std::move(ending.fault), ending.grace);
  }
  settle(job);
}

// Preempts all ranks of a model together: ranks that were preempted alone would wait for the others
// until they are killed, and their end would count as a fault.
void Core::preempt_ranks_of(const Worker& worker, Duration grace, const std::string& why) {
  for (const JobId id : attempts_.jobs()) {
    Job& job = jobs_.at(id);
    if (!is_undecided(job) || !has_ranks(job, attempts_.at(id).ranks, worker)) continue;
    fault(job, fault_of_preemption(job, worker.name, why, time_.unix_ns), grace);
  }
}

// Ends the attempt. Its remaining ranks get `grace` to save.
void Core::fault(Job& job, Fault cause, Duration grace) {
  LiveAttempt& attempt = attempts_.at(job.id);
  name_cut_link(attempt.view(job), attempt.links, fleet_, time_.now, cause);
  take_step(job, attempt.ladder.leave(job, dumps_));
  attempt.ladder.close_inconclusive(incidents_, "none: its attempt ended first", cause.message,
                                    time_.unix_ns);
  job.state = JobState::kRestarting;
  const AttemptWatch& steps = attempt.progress.steps;
  const bool made_a_step = steps.made_a_step();
  add_progress(job, made_a_step ? steps.base_step() : -1, cause);
  if (made_a_step) note_training(job);
  const int32_t there = nodes_possible(job, fleet_, nodes_, time_.unix_ns);
  cause.has_elsewhere = there > nodes_now(job) || smallest_size(job.spec) < nodes_now(job);
  cause.revision = job.revision;
  if (job.trial && made_a_step) {
    begin_trial_steps(job);
    job.trial->newest_step =
        std::max({job.trial->newest_step, steps.newest_step(), cause.last_step});
  }
  // An attempt on trial shows nothing about its nodes, except for failed hardware.
  const bool may_be_nodes =
      job.trial ? is_of_hardware(cause) : !made_a_step || names_its_node(cause);
  cause.node_unfit = cause.has_elsewhere && may_be_nodes && is_of_unfit_node(job, cause, there);
  cause.productive = table_of(account_of(job, time_.now)).productive();
  add_fault(job, std::move(cause));
  const Fault& newest = job.faults.back();
  const RestartDecision decision = decide_restart(job);
  jobs_.note(job, absl::StrCat(decision.restart ? newest.message : "ends: " + decision.reason,
                               grace > Duration::zero() ? "; all ranks save and leave"
                                                        : "; the other ranks are stopped"));
  Ledger& ledger = accounts_.of(job.id);
  if (is_preempted(newest)) {
    ledger.stopping(newest.for_time_limit ? LossCause::kTimeLimit
                    : newest.is_planned   ? LossCause::kPlanned
                                          : LossCause::kPreempted,
                    time_.now);
  } else {
    const Instant progress = record_fault(incidents_, attempt, job, ledger.best_step(), time_);
    ledger.fault(newest.kind, progress, time_.now);
  }
  Duration time = job.spec.is_program() ? std::max(grace, options_.program_grace) : grace;
  // No order to leave, such as that of a drain or an update, extends the time limit.
  if (const auto left = time_left(job)) time = std::min(time, std::max(*left, kTimeLimitGraceMin));
  attempt.expect_ends(job, time, options_, time_.now);
  append(actions_, orders_to_stop(job, attempt.ranks, fleet_, options_, newest.message));
  if (decision.rolls_back || fails_trial(job)) return;
  if (std::optional<NodeSuspicion> node = suspicion_after(nodes_, job))
    suspect_node(newest.worker, *std::move(node));
}

// Ends the attempt or the job if all ranks have ended. Called after each end of a rank.
void Core::settle(Job& job) {
  LiveAttempt& attempt = attempts_.at(job.id);
  if (job.state == JobState::kRestarting)
    attempt.reach.next_check = time_.now;  // checks which workers are still awaited
  if (!attempt.all_ended()) return;
  Outcome outcome = outcome_of(job, job.cancel_requested ? stuck_ranks_of(job, fleet_) : 0);
  if (outcome.kind == Outcome::Kind::kFault) {
    Ending ending = ending_of_exits(job, attempt.crash, options_, time_.unix_ns);
    fault(job, std::move(ending.fault), ending.grace);
    outcome = outcome_of(job, 0);
  }
  if (outcome.kind == Outcome::Kind::kFinished)
    finish(job, outcome.state, outcome.exit_code, std::move(outcome.reason));
  else if (outcome.kind == Outcome::Kind::kEnded)
    end_attempt(job);
}

// Requires RESTARTING with every rank gone: the newest fault is the cause.
void Core::end_attempt(Job& job) {
  LiveAttempt& attempt = attempts_.at(job.id);
  complete_crash(incidents_, attempt.crash);
  accounts_.enter(job, JobTransition::kGone, incidents_, time_);
  // Ranks that have ended meanwhile may show that no single node, or the job itself, is the cause.
  Fault& newest = job.faults.back();
  newest.node_unfit = newest.node_unfit && !(is_of_setup(newest) && is_on_several_nodes(job));
  RestartDecision decision = decide_restart(job);
  revise_action(incidents_, attempt, decision, job.faults.back(), time_.unix_ns);
  if (!decision.restart) {
    job.is_futile = decision.is_futile;
    const int32_t exit_code =
        decision.is_futile ? kNoProgressExitCode : exit_code_of(job.faults.back());
    finish(job, JobState::kFailed, exit_code, std::move(decision.reason));
    return;
  }
  // A further attempt would be ordered to leave as soon as it starts.
  if (const auto left = time_left(job);
      left && *left <= first_time_limit_lead(job.spec, options_.grow_grace)) {
    finish(job, JobState::kFailed, kTimeLimitExitCode,
           absl::StrCat(time_limit_text(job), "; ", job.faults.back().message));
    return;
  }
  actions_.push_back(
      PersistAttempt{attempt.record_of_end(job, job.faults.back().message, time_.unix_ns)});
  note_log_leader(job);
  count_restart(job, decision);
  job.keeps_nodes = decision.rolls_back || job.faults.back().for_update || has_left_slow_node(job);
  if (decision.rolls_back)
    roll_back(job);
  else if (job.update)
    adopt_update(job);
  jobs_.measure(job);
  job.state = JobState::kQueued;
  job.previous_nodes = nodes_of(job.placement);
  job.placement.clear();
  job.ranks.clear();
  job.exits.clear();
  attempt.progress.close_incidents(incidents_, time_.unix_ns);
  attempts_.end(job, incidents_);
  jobs_.note(job, std::move(decision.reason));
  const Instant ready = time_.now + decision.delay;
  job.not_before_unix_ns = decision.delay > Duration::zero() ? time_.unix_ns_of(ready) : 0;
  queue_.add_former(job, ready, ready, options_);
  schedule_needed_ = true;
}

void Core::note_log_leader(Job& job) const {
  auto& leaders = job.log_leaders;
  if (options_.coordinator.empty() ||
      (!leaders.empty() && leaders.back().coordinator == options_.coordinator))
    return;
  leaders.push_back({job.attempt, options_.coordinator});
  if (leaders.size() > kLogLeadersKeptMax) leaders.erase(leaders.begin());
}

void Core::finish(Job& job, JobState state, int32_t exit_code, std::string reason) {
  bool shows_no_steps = false;
  if (LiveAttempt* attempt = attempts_.find(job.id)) {
    take_step(job, attempt->ladder.leave(job, dumps_));
    complete_crash(incidents_, attempt->crash);
    attempt->ladder.close_inconclusive(incidents_, "none: the job ended first", "the job has ended",
                                       time_.unix_ns);
    shows_no_steps = attempt->progress.hang.is_silent();
    actions_.push_back(PersistAttempt{attempt->record_of_end(job, reason, time_.unix_ns)});
    note_log_leader(job);
  }
  job.slow_nodes.clear();
  close_open_incidents(incidents_, job, absl::StrCat("the job is ", av(job_state_name(state))),
                       time_.unix_ns);
  job.state = state;
  job.exit_code = exit_code;
  job.finished_unix_ns = time_.unix_ns;
  end_recovery(incidents_, job, IncidentId(0), shows_no_steps);
  job.account = accounts_.close(job.id, time_.now, time_.unix_ns);
  job.held.clear();
  ended_.push_back(job.id);
  dependents_.remove(job);
  job.waits_for.clear();
  if (job.trial) end_trial(job, "the job ended first");
  if (job.update) drop_update(job, "not rolled in: the job ended first");
  // The environment may contain tokens and passwords. Only attempts need the values, and no further
  // attempt follows.
  for (auto& [name, value] : job.spec.environment) value.clear();
  for (SmallerJob& size : job.spec.smaller) size.train_config_json.clear();
  jobs_.note(job, std::move(reason));
  attempts_.end_last(job, incidents_);
  jobs_.end(job);
  // Any worker may have data of the job from an earlier attempt. A worker that is not connected
  // receives the job's end when it registers.
  if (job.attempt > Attempt(0)) {
    for (const auto& [name, worker] : fleet_.all())
      if (worker.connected) actions_.push_back(send_action(worker, SendJobEnded{job.id}));
  }
  schedule_needed_ = true;
}

}  // namespace muster::coordinator
