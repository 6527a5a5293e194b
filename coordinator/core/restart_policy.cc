#include "coordinator/core/restart_policy.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include "common/absl_view.h"

namespace muster::coordinator {
namespace {

std::string signal_text(int32_t signal) {
  constexpr std::array<std::pair<int32_t, std::string_view>, 10> kNames = {{{1, "SIGHUP"},
                                                                            {2, "SIGINT"},
                                                                            {4, "SIGILL"},
                                                                            {6, "SIGABRT"},
                                                                            {7, "SIGBUS"},
                                                                            {8, "SIGFPE"},
                                                                            {9, "SIGKILL"},
                                                                            {11, "SIGSEGV"},
                                                                            {15, "SIGTERM"},
                                                                            {24, "SIGXCPU"}}};
  for (const auto& [number, name] : kNames) {
    if (number == signal) return absl::StrCat("signal ", signal, " (", av(name), ")");
  }
  return absl::StrCat("signal ", signal);
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

}  // namespace muster::coordinator
