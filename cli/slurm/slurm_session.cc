#include "cli/slurm/slurm_session.h"

#include <poll.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <utility>

#include <absl/strings/str_cat.h>

#include "cli/incidents/incident_files.h"
#include "cli/jobs/job_view.h"
#include "cli/slurm/slurm_commands.h"
#include "common/process/exit_code.h"

namespace muster::cli {
namespace {

constexpr auto kPollPeriod = std::chrono::milliseconds(250);
// Time for the last lines of ranks that have ended.
constexpr auto kLogTail = std::chrono::seconds(5);
// Added to the ranks' grace, for the coordinator to report their end.
constexpr auto kReportGrace = std::chrono::seconds(15);
// A job that waits this long for nodes of its own allocation will not get them.
constexpr auto kStarved = std::chrono::seconds(60);
// Poll interval; slurmctld serves the whole cluster.
constexpr auto kStepPeriod = std::chrono::seconds(2);

SlurmNodes::Options nodes_of(const SlurmJob& slurm, const v1::JobSpec& spec) {
  return {.job = slurm, .fewest = spec.min_nodes() > 0 ? spec.min_nodes() : spec.nodes()};
}

int64_t highest_step(const v1::Job& job) {
  int64_t step = -1;
  for (const v1::RankStatus& rank : job.ranks()) step = std::max(step, rank.step());
  for (const v1::Fault& fault : job.faults()) step = std::max(step, fault.last_step());
  return step;
}

}  // namespace

SlurmSession::SlurmSession(const Parts& parts, const v1::JobSpec& spec, bool saves)
    : parts_(parts),
      saves_(saves),
      is_program_(spec.command_size() > 0),
      began_(monotonic_now()),
      watch_(parts.client, parts.printer, spec,
             {.address = parts.fleet.address(),
              .on_incident =
                  [this](uint64_t incident) {
                    (void)save_incident(parts_.client, incident, parts_.folder);
                  }}),
      nodes_(nodes_of(parts.slurm, spec), {.address = parts.fleet.address()}),
      limit_(parts.slurm) {}

SlurmSession::~SlurmSession() {
  if (!watch_.logs_are_complete()) parts_.printer.give_up();
}

void SlurmSession::leave(LeaveDecision leave_decision) {
  if (!saves_ && leave_decision.requeue)
    leave_decision = {
        false, leave_decision.reason +
                   "; without checkpoints another allocation would start from the beginning"};
  leave_decision_ = std::move(leave_decision);
  parts_.printer.notice(absl::StrCat("the job leaves its allocation: ", leave_decision_->reason));
  leave_requested_at_ = monotonic_now();
  leave_by_ = *leave_requested_at_ + parts_.leave_time + kReportGrace;
  const v1::Job last = watch_.job();
  if (last.id() == 0 || watch_.has_ended()) return;
  const auto now = parts_.client.get_job(last.id());  // the watched job has no steps of ranks
  step_ = highest_step(now.ok() ? *now : last);
  watch_.cancel();
}

Allocation SlurmSession::allocation() const {
  return {.step = std::max(step_, highest_step(watch_.job())),
          .lasted = leave_requested_at_.value_or(monotonic_now()) - began_,
          .counts = !is_program_};
}

// Slurm kills everything that has not left within KillWait, including the script, and requeues
// nothing that its time limit ended. So the request is sent now.
void SlurmSession::handle_end() {
  const SlurmJobState state = query_slurm_job(parts_.slurm);
  if (!leave_decision_->requeue || !is_being_ended(state) ||
      !decide_leave(parts_.slurm, state).requeue)
    return;
  advise(/*saved=*/false);
  parts_.next_allocation.request(allocation());
}

void SlurmSession::advise(bool saved) {
  if (!lead_seconds_) return;
  const auto took =
      std::chrono::ceil<std::chrono::seconds>(monotonic_now() - *leave_requested_at_).count();
  const std::string advice = lead_advice(*std::exchange(lead_seconds_, {}), took, saved);
  if (!advice.empty()) parts_.printer.notice(advice);
}

void SlurmSession::leave_before_limit() {
  leave({true, "SIGUSR1: its time limit is near"});
  const SlurmJobState state = query_slurm_job(parts_.slurm);
  if (state.run_seconds && state.limit_seconds && saves_)
    lead_seconds_ = std::max<int64_t>(*state.limit_seconds - *state.run_seconds, 0);
}

void SlurmSession::take_signals() {
  while (const int signo = parts_.signals.take()) {
    if (signo == SIGINT && interrupts_.add(monotonic_now()) && interrupts_.count() > 1)
      leave_by_ = monotonic_now();
    if (watch_.has_ended()) continue;
    if (leave_decision_) {
      if (signo == SIGTERM) handle_end();
    } else if (signo == SIGUSR1) {
      const std::string early = limit_.on_signal();
      if (early.empty())
        leave_before_limit();
      else
        parts_.printer.notice(early);
    } else if (signo == SIGTERM) {
      const SlurmJobState state = query_slurm_job(parts_.slurm);
      leave(decide_leave(parts_.slurm, state));
      if (leave_decision_->requeue && is_being_ended(state))
        parts_.next_allocation.request(allocation());
    } else {
      leave({false, "interrupted"});
    }
  }
}

// On preemption Slurm signals the steps and not the batch script: leaving workers are its first
// sign.
void SlurmSession::poll_workers() {
  for (const std::string& notice : nodes_.take_events()) parts_.printer.notice(notice);
  if (!parts_.step.runs_alone() && (nodes_.launched() || leave_decision_))
    parts_.step.release_srun();
  const v1::Job job = watch_.job();
  const Instant now = monotonic_now();
  // A queued job that has enough nodes is in its backoff before a restart.
  if (leave_decision_ || job.state() != v1::QUEUED || !nodes_.too_few())
    return starved_since_.reset();
  if (!starved_since_) starved_since_ = query_workers_at_ = now;
  if (nodes_.staying() == 0 && now >= *query_workers_at_) {
    // A restarted coordinator has no workers for a moment.
    query_workers_at_ = now + kStepPeriod;
    if (workers_have_ended(parts_.slurm)) {
      if (auto leave_decision = decide_workers_leave(parts_.slurm, query_slurm_job(parts_.slurm)))
        return leave(*std::move(leave_decision));
      fault_ = absl::UnavailableError(
          "every worker has ended, although Slurm neither ends nor preempts the job");
      return;
    }
  }
  if (now - *starved_since_ >= kStarved) {
    leave({true, absl::StrCat("this allocation has too few nodes left (", job.reason(), ")")});
  }
}

bool SlurmSession::is_done() {
  const Instant now = monotonic_now();
  if (leave_by_ && now >= *leave_by_) return true;
  if (leave_decision_ && watch_.job().id() == 0) return true;  // there is nothing to save yet
  if (!watch_.has_ended()) return false;
  if (!logs_by_) logs_by_ = now + kLogTail;
  return watch_.logs_are_complete() || now >= *logs_by_;
}

void SlurmSession::wait_for_event() {
  const bool has_ended = watch_.has_ended();
  std::array<pollfd, 3> fds = {
      pollfd{parts_.signals.fd(), POLLIN, 0}, pollfd{watch_.event_fd(), POLLIN, 0},
      pollfd{has_ended ? -1 : parts_.fleet.coordinator().pidfd(), POLLIN, 0}};
  poll(fds.data(), fds.size(), static_cast<int>(kPollPeriod.count()));
  watch_.reset_event();
}

// Restarts a coordinator that died; ranks do not notice.
absl::Status SlurmSession::trouble() {
  std::vector<std::string> notes;
  absl::Status status = parts_.fleet.mend(notes);
  for (const std::string& note : notes) parts_.printer.notice(note);
  if (status.ok()) status = fault_;
  if (status.ok() && !leave_decision_) status = parts_.step.health();
  if (status.ok()) status = watch_.trouble();
  return status;
}

absl::StatusOr<int> SlurmSession::follow() {
  while (!is_done()) {
    wait_for_event();
    take_signals();
    if (watch_.has_ended()) continue;
    if (!leave_decision_ && limit_.is_due(monotonic_now())) leave_before_limit();
    poll_workers();
    if (absl::Status status = trouble(); !status.ok()) return status;
  }
  const v1::Job job = watch_.job();
  advise(/*saved=*/watch_.has_ended());
  // The job had finished before the request to leave.
  if (job.state() == v1::SUCCEEDED || job.state() == v1::FAILED) leave_decision_.reset();
  return leave_decision_ ? to_int(ExitCode::kPreempted) : job.exit_code();
}

}  // namespace muster::cli
