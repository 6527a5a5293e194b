#include "coordinator/core/restart_policy.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include "common/absl_view.h"
#include "common/rank_set.h"
#include "coordinator/core/blame_text.h"

namespace muster::coordinator {
namespace {

std::string signal_text(int32_t signal) {
  const char* name = sigabbrev_np(signal);
  return absl::StrCat("signal ", signal, name == nullptr ? "" : absl::StrCat(" (SIG", name, ")"));
}

std::string_view meaning_of(const RankExit& exit) {
  if (ended_as(exit, ExitCode::kBadInput)) return " (bad input)";
  if (ended_as(exit, ExitCode::kNotFinite)) return " (loss or gradient not finite)";
  if (ended_as(exit, ExitCode::kDiskFull)) return " (disk full)";
  if (ended_as(exit, ExitCode::kPreempted)) return " (preempted)";
  if (ended_as(exit, ExitCode::kPeerLost)) return " (lost a peer)";
  return "";
}

bool was_no_program(const Fault& fault) {
  return fault.of_program && fault.signal == 0 &&
         (fault.exit_code == to_int(ExitCode::kNotExecutable) ||
          fault.exit_code == to_int(ExitCode::kProgramNotFound));
}

std::string progress_text(int64_t last_step) {
  if (last_step < 0) return "before its first step";
  return absl::StrCat("after ", last_step, last_step == 1 ? " step" : " steps");
}

}  // namespace

Duration backoff_before_restart(int32_t restart) {
  if (restart <= 1) return Duration::zero();
  constexpr int32_t kDoublingsMax = 16;  // past the bound, and far from overflow
  return std::min<Duration>(kBackoffMax,
                            kBackoffFirst * (1LL << std::min(restart - 2, kDoublingsMax)));
}

RestartDecision decide_restart(const Job& job) {
  const Fault& fault = job.faults.back();
  RestartDecision decision;
  if (was_no_program(fault)) {
    decision.reason = absl::StrCat(fault.message, "; what cannot be started is not retried");
    return decision;
  }
  if (ended_as(fault, ExitCode::kBadInput)) {
    decision.reason = absl::StrCat(fault.message, "; bad input is not retried");
    return decision;
  }
  if (ended_as(fault, ExitCode::kNotFinite)) {
    decision.reason = absl::StrCat(fault.message, "; a retry would compute the same values");
    return decision;
  }
  if (is_preempted(fault)) {
    const int64_t preemptions = int64_t{job.attempt.value()} - 1 - job.restarts;
    decision.counts = false;
    decision.restart = preemptions < kPreemptionsMax;
    const bool worker_said_so = fault.rank.value() < 0;
    decision.delay = worker_said_so ? Duration::zero() : kPreemptedDelay;
    decision.reason = decision.restart
                          ? absl::StrCat("will go on from its checkpoint: ", fault.message)
                          : absl::StrCat("preempted ", preemptions, " times; ", fault.message);
    return decision;
  }
  if (job.restarts >= job.spec.restarts_max) {
    decision.reason =
        absl::StrCat(fault.message, "; ",
                     job.spec.restarts_max == 0 ? std::string("no restarts were allowed")
                     : job.spec.restarts_max == 1
                         ? std::string("the one restart is used up")
                         : absl::StrFormat("all %d restarts are used up", job.spec.restarts_max));
    return decision;
  }
  const int32_t restart = job.restarts + 1;
  decision.restart = true;
  decision.delay = backoff_before_restart(restart);
  decision.reason = absl::StrFormat("restart %d of %d%s: %s", restart, job.spec.restarts_max,
                                    decision.delay > Duration::zero()
                                        ? absl::StrFormat(" in %g s", to_seconds(decision.delay))
                                        : std::string(),
                                    fault.message);
  return decision;
}

int32_t exit_code_of(const Fault& fault) {
  constexpr int32_t kSignalBase = 128;
  if (fault.signal > 0) return kSignalBase + fault.signal;
  return fault.exit_code > 0 ? fault.exit_code : to_int(ExitCode::kFailure);
}

Fault fault_of(const RankExit& exit, const WorkerName& worker, int64_t unix_ns) {
  Fault fault;
  fault.rank = exit.rank;
  fault.worker = worker;
  fault.signal = exit.signal;
  fault.exit_code = exit.exit_code;
  fault.last_step = exit.last_step;
  fault.unix_ns = unix_ns;
  fault.of_program = exit.of_program;
  const std::string how =
      exit.signal > 0 ? absl::StrCat("was killed by ", signal_text(exit.signal))
                      : absl::StrCat("exited with code ", exit.exit_code, av(meaning_of(exit)));
  // Who is killed says nothing of it: the newest line of its output is about something else. But
  // who aborts has just said why.
  constexpr int32_t kSigabrt = 6;
  const bool tells = (exit.signal == 0 || exit.signal == kSigabrt) && !exit.detail.empty();
  fault.message =
      absl::StrCat("rank ", exit.rank.value(), " on ", worker.value(), " ", how, " ",
                   progress_text(exit.last_step), tells ? ": " : "", tells ? exit.detail : "");
  return fault;
}

Fault fault_without_culprit(const Job& job, int64_t unix_ns) {
  Fault fault;
  fault.exit_code = to_int(ExitCode::kPeerLost);
  fault.unix_ns = unix_ns;
  const auto victim = std::find_if(job.exits.begin(), job.exits.end(), is_victim);
  if (victim != job.exits.end()) fault.last_step = victim->last_step;
  const std::string loss =
      absl::StrCat("rank ", victim == job.exits.end() ? -1 : victim->rank.value(), " lost a peer");
  const auto blame = [&](Rank rank) {
    fault.rank = rank;
    const auto index = static_cast<size_t>(rank.value());
    if (index < job.placement.size()) fault.worker = job.placement[index].worker;
  };
  // Reports come in their order: who was through before the first victim left the others alone.
  const auto leaver = std::find_if(job.exits.begin(), job.exits.end(), is_success);
  if (leaver != job.exits.end()) {
    blame(leaver->rank);
    fault.message =
        absl::StrCat(rank_text(leaver->rank.value(), job.placement), " exited with code 0 ",
                     progress_text(leaver->last_step), ", before the others were through; ", loss);
    return fault;
  }
  RankSet silent;
  for (size_t rank = 0; rank < job.ranks.size(); ++rank)
    if (job.ranks[rank].life != RankState::Life::kExited) silent.add(static_cast<int32_t>(rank));
  fault.message = absl::StrCat(loss, ", but no rank was reported dead");
  if (silent.empty() || victim == job.exits.end()) return fault;
  if (silent.size() == 1) blame(Rank(silent.ranges()[0].first));
  absl::StrAppend(&fault.message, "; ", ranks_text(silent),
                  silent.size() == 1 ? " alone has" : " have", " not said so");
  return fault;
}

}  // namespace muster::coordinator
