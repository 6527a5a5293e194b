#include "coordinator/core/recovery/rank_faults.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <string_view>

#include <absl/strings/str_cat.h>

#include "common/job/rank_set.h"
#include "common/text/absl_view.h"
#include "coordinator/core/blame/blame_text.h"
#include "coordinator/core/recovery/log_verdict.h"
#include "coordinator/core/recovery/restart_policy.h"

namespace muster::coordinator {
namespace {

std::string signal_text(int32_t signal) {
  const char* name = sigabbrev_np(signal);
  return absl::StrCat("signal ", signal, name == nullptr ? "" : absl::StrCat(" (SIG", name, ")"));
}

std::string_view meaning_of(const RankExit& exit) {
  if (ended_as(exit, ExitCode::kBadInput)) return " (bad input)";
  if (ended_as(exit, ExitCode::kNotFinite)) return " (loss or gradient not finite, or spikes)";
  if (ended_as(exit, ExitCode::kDiskFull)) return " (disk full)";
  if (ended_as(exit, ExitCode::kStorageAway)) return " (checkpoint storage away)";
  if (ended_as(exit, ExitCode::kPreempted)) return " (preempted)";
  if (ended_as(exit, ExitCode::kPeerLost)) return " (lost a peer)";
  return "";
}

// Returns " after 5 steps". A program without steps may not report them.
std::string progress_text(int64_t last_step, bool of_program) {
  if (last_step < 0) return of_program ? "" : " before its first step";
  return absl::StrCat(" after ", last_step, last_step == 1 ? " step" : " steps");
}

// Returns whether the detail has the reason of the signal: the error that a rank has printed before
// it aborted or crashed, or the limit that was reached, which the worker names.
bool has_reason(int32_t signal) {
  constexpr int32_t kSigill = 4, kSigbus = 7, kSigfpe = 8, kSigkill = 9, kSigsegv = 11,
                    kSigxcpu = 24, kSigxfsz = 25, kSigsys = 31;
  constexpr std::array<int32_t, 9> kSignals = {kSigill,  kSigabrt, kSigbus,  kSigfpe, kSigkill,
                                               kSigsegv, kSigxcpu, kSigxfsz, kSigsys};
  return std::ranges::find(kSignals, signal) != kSignals.end();
}

}  // namespace

Fault fault_of(const RankExit& exit, const WorkerName& worker, int64_t unix_ns) {
  Fault fault;
  fault.rank = exit.rank;
  fault.worker = worker;
  fault.signal = exit.signal;
  fault.exit_code = exit.exit_code;
  fault.last_step = exit.last_step;
  fault.unix_ns = unix_ns;
  fault.of_program = exit.of_program;
  take_family(exit, fault);
  const std::string how =
      exit.signal > 0 ? absl::StrCat("was killed by ", signal_text(exit.signal))
                      : absl::StrCat("exited with code ", exit.exit_code, av(meaning_of(exit)));
  // A killed rank does not report its signal, so the newest line of its output is unrelated, unless
  // the worker reports the cause.
  const bool has_detail =
      (exit.signal == 0 || has_reason(exit.signal) || exit.cause != ExitCause::kUnknown) &&
      !exit.detail.empty();
  fault.message = absl::StrCat("rank ", exit.rank.value(), " on ", worker.value(), " ", how,
                               progress_text(exit.last_step, exit.of_program),
                               has_detail ? ": " : "", has_detail ? exit.detail : "");
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
  // Reports arrive in order: a rank that finished before the first victim reported was missing for
  // the other ranks.
  const auto leaver = std::find_if(job.exits.begin(), job.exits.end(), is_success);
  if (leaver != job.exits.end()) {
    blame(leaver->rank);
    fault.message =
        absl::StrCat(rank_and_node_text(leaver->rank.value(), job.placement), " exited with code 0",
                     progress_text(leaver->last_step, leaver->of_program),
                     ", before the others were through; ", loss);
    return fault;
  }
  RankSet silent;
  for (size_t rank = 0; rank < job.ranks.size(); ++rank)
    if (job.ranks[rank].life != RankState::Life::kExited) silent.add(static_cast<int32_t>(rank));
  fault.message = absl::StrCat(loss, ", but no rank was reported dead");
  if (victim == job.exits.end()) return fault;
  if (silent.size() == 1) blame(Rank(silent.ranges()[0].first));
  if (!silent.empty())
    absl::StrAppend(&fault.message, silent.size() == 1 ? "; only " : "; ", ranks_text(silent),
                    silent.size() == 1 ? " has" : " have", " not reported a loss");
  // The victim's detail may be the only information, for example that NCCL's communicator could not
  // be created.
  if (!victim->detail.empty())
    absl::StrAppend(&fault.message, "; rank ", victim->rank.value(), " reported: ", victim->detail);
  if (!victim->lost_link.empty()) absl::StrAppend(&fault.message, "; ", victim->lost_link);
  return fault;
}

}  // namespace muster::coordinator
