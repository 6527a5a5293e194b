#include "coordinator/core/attempt/endings.h"

#include <algorithm>
#include <utility>

#include <absl/strings/str_cat.h>

#include "common/process/exit_code.h"
#include "common/text/absl_view.h"
#include "coordinator/core/attempt/first_fault.h"
#include "coordinator/core/attempt/lost_link.h"
#include "coordinator/core/incident/incident_book.h"
#include "coordinator/core/recovery/log_verdict.h"
#include "coordinator/core/recovery/rank_faults.h"
#include "coordinator/core/recovery/restart_policy.h"
#include "coordinator/core/recovery/time_limit.h"

namespace muster::coordinator {
namespace {

std::string all_ranks_text(const Job& job) {
  return job.ranks.size() == 1 ? "its one rank" : absl::StrCat("all ", job.ranks.size(), " ranks");
}

// Returns a clause about output that may be missing, or "".
std::string missing_output_text(const Job& job) {
  const auto ranks = std::ranges::count_if(job.exits, &RankExit::output_incomplete);
  if (ranks == 0) return "";
  return absl::StrCat("; output of ", ranks, ranks == 1 ? " rank" : " ranks",
                      " may be missing, because the disk of its worker was full");
}

Fault fault_without_rank(std::string message, ExitCode exit_code, int64_t unix_ns) {
  Fault fault;
  fault.exit_code = to_int(exit_code);
  fault.message = std::move(message);
  fault.unix_ns = unix_ns;
  return fault;
}

// Returns the fault of an attempt in which ranks of the trainer report only lost peers.
Fault fault_of_victims(const Job& job, int64_t unix_ns) {
  if (std::ranges::none_of(job.exits, is_success))
    if (std::optional<Fault> of_link = fault_of_lost_link(job, unix_ns)) return *std::move(of_link);
  return fault_without_culprit(job, unix_ns);
}

}  // namespace

bool is_undecided(const Job& job) {
  return (job.state == JobState::kStarting || is_running(job.state)) && !job.cancel_requested;
}

Ending ending_of_exits(const Job& job, const CrashEvidence& crash, const CoreOptions& options,
                       int64_t unix_ns) {
  auto culprit = std::ranges::find_if(job.exits, [](const RankExit& exit) {
    return !is_success(exit) && !is_victim(exit) && !may_be_victim(exit);
  });
  if (culprit == job.exits.end())
    culprit = std::ranges::find_if(
        job.exits, [](const RankExit& exit) { return may_be_victim(exit) && !is_witness(exit); });
  if (culprit == job.exits.end() && std::ranges::any_of(job.exits, is_witness))
    return {fault_of_witnesses(job, crash, unix_ns)};
  if (culprit == job.exits.end()) return {fault_of_victims(job, unix_ns)};
  const WorkerName& worker = job.placement[static_cast<size_t>(culprit->rank.value())].worker;
  // Preempted ranks agree on a step and write a checkpoint together, so the other ranks get the
  // same grace.
  Ending ending{fault_of(*culprit, worker, unix_ns),
                is_preempted(*culprit) ? options.cancel_grace : Duration::zero()};
  ending.fault.kind = kind_of_exit(*culprit);
  return ending;
}

std::optional<Ending> ending_of_deadlines(const Job& job, const LiveAttempt& attempt,
                                          const Fleet& fleet, const CoreOptions& options,
                                          const CoreTime& time) {
  if (attempt.victim_deadline && *attempt.victim_deadline <= time.now &&
      !awaits_a_worker(job, attempt.ranks, fleet))
    return ending_of_exits(job, attempt.crash, options, time.unix_ns);
  if (attempt.start_deadline && *attempt.start_deadline <= time.now)
    return Ending{fault_of_slow_start(job, options.start_budget, time.unix_ns)};
  return std::nullopt;
}

ExitMeaning meaning_of(const RankExit& exit, const WorkerName& worker, const Job& job,
                       const LiveAttempt& attempt, const Fleet& fleet, Instant now) {
  if (!is_undecided(job) || is_success(exit)) return ExitMeaning::kNone;
  const bool is_caused =
      is_victim(exit) || (is_witness(exit) && job.ranks.size() > 1) ||
      (may_be_victim(exit) && misses_a_worker(attempt.view(job), worker, fleet, now));
  return is_caused ? ExitMeaning::kVictim : ExitMeaning::kCulprit;
}

Fault fault_of_preemption(const Job& job, const WorkerName& worker, std::string_view why,
                          int64_t unix_ns) {
  Fault fault = fault_without_rank(absl::StrCat("worker ", worker.value(), " ", av(why)),
                                   ExitCode::kPreempted, unix_ns);
  fault.worker = worker;
  for (const RankState& rank : job.ranks) fault.last_step = std::max(fault.last_step, rank.step);
  return fault;
}

Fault fault_of_time_limit(const Job& job, int64_t unix_ns) {
  Fault fault = fault_without_rank(time_limit_text(job), ExitCode::kPreempted, unix_ns);
  for (const RankState& rank : job.ranks) fault.last_step = std::max(fault.last_step, rank.step);
  fault.for_time_limit = true;
  return fault;
}

Fault fault_of_missing_rank(Rank rank, const WorkerName& worker, int64_t unix_ns) {
  Fault fault =
      fault_without_rank(absl::StrCat("rank ", rank.value(), " is gone from ", worker.value(),
                                      ", which did not report how it ended"),
                         ExitCode::kFailure, unix_ns);
  fault.rank = rank;
  fault.worker = worker;
  fault.is_unreported = true;
  return fault;
}

Fault fault_of_lost_worker(const WorkerName& worker, std::string_view why, int64_t last_step,
                           int64_t unix_ns) {
  Fault fault = fault_without_rank(
      absl::StrCat("worker ", worker.value(), " ", av(why), "; its ranks are lost"),
      ExitCode::kFailure, unix_ns);
  fault.worker = worker;
  fault.last_step = last_step;
  fault.kind = IncidentKind::kWorkerLost;
  return fault;
}

Fault fault_of_slow_start(const Job& job, Duration start_budget, int64_t unix_ns) {
  const auto waiting = std::ranges::find_if(
      job.ranks, [](const RankState& rank) { return rank.life == RankState::Life::kAssigned; });
  const auto rank = static_cast<size_t>(waiting - job.ranks.begin());
  const WorkerName& worker = job.placement[rank].worker;
  Fault fault =
      fault_without_rank(absl::StrCat("rank ", rank, " on ", worker.value(), " was not up within ",
                                      to_seconds(start_budget), " s"),
                         ExitCode::kFailure, unix_ns);
  fault.rank = Rank(static_cast<int32_t>(rank));
  fault.worker = worker;
  fault.kind = IncidentKind::kNotStarted;
  return fault;
}

void add_progress(const Job& job, int64_t resumed_from, Fault& fault) {
  if (!job.faults.empty()) {
    fault.checkpoint_step = job.faults.back().checkpoint_step;
    fault.resumed_from = job.faults.back().resumed_from;
    fault.job_step = job.faults.back().job_step;
  }
  fault.resumed_from = std::max(fault.resumed_from, resumed_from);
  fault.job_step = std::max(fault.job_step, fault.last_step);
  for (const RankState& rank : job.ranks) {
    fault.checkpoint_step = std::max(fault.checkpoint_step, rank.checkpoint_step);
    fault.job_step = std::max(fault.job_step, rank.step);
  }
}

Outcome outcome_of(const Job& job, int64_t stuck) {
  if (job.cancel_requested) {
    const int64_t silent = std::ssize(job.ranks) - std::ssize(job.exits) - stuck;
    std::string reason = absl::StrCat("cancelled; ", all_ranks_text(job),
                                      job.ranks.size() == 1 ? " is" : " are", " gone");
    if (stuck > 0) absl::StrAppend(&reason, ", but for ", stuck, " that cannot be killed");
    if (silent > 0)
      absl::StrAppend(&reason, ", but for ", silent, " whose workers have not reported the end");
    return {Outcome::Kind::kFinished, JobState::kCancelled, to_int(ExitCode::kInterrupted),
            std::move(reason)};
  }
  // This includes an attempt that succeeded before the order to stop arrived.
  if (std::ranges::all_of(job.exits, is_success) && job.exits.size() == job.ranks.size()) {
    return {Outcome::Kind::kFinished, JobState::kSucceeded, to_int(ExitCode::kOk),
            absl::StrCat(all_ranks_text(job), " exited with code 0", missing_output_text(job))};
  }
  const bool has_fault = job.state == JobState::kRestarting;
  return {has_fault ? Outcome::Kind::kEnded : Outcome::Kind::kFault, job.state, 0, ""};
}

}  // namespace muster::coordinator
