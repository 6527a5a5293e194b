#include "coordinator/core/recovery/restart_policy.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include "common/job/rank_set.h"
#include "common/text/absl_view.h"
#include "common/text/program_error.h"
#include "common/time/doubled.h"
#include "coordinator/core/blame/blame_text.h"
#include "coordinator/core/recovery/avoidance.h"
#include "coordinator/core/recovery/log_verdict.h"
#include "coordinator/core/recovery/revisions.h"

namespace muster::coordinator {
namespace {

bool was_no_program(const Fault& fault) {
  return fault.of_program && fault.signal == 0 &&
         (fault.exit_code == to_int(ExitCode::kNotExecutable) ||
          fault.exit_code == to_int(ExitCode::kProgramNotFound));
}

// Returns the steps that a restart does not lose.
int64_t durable_step(const Fault& fault) {
  return std::max(fault.checkpoint_step, fault.resumed_from);
}

// Returns whether the job has made durable progress since these restarts, so that they no longer
// count.
bool is_settled_by_progress(const RestartsUsed& used, const JobSpec& spec, const Fault& fault) {
  if (durable_step(fault) >= 1) return durable_step(fault) > used.checkpoint_step;
  if (spec.is_program() && fault.job_step < 0)
    return fault.productive - used.productive >= kSilentProgress;
  return fault.job_step >= std::max<int64_t>(used.job_step, 0) + kStepsOfProgress;
}

std::map<Cause, RestartsUsed> restarts_that_count(const Job& job) {
  std::map<Cause, RestartsUsed> used = job.restarts_used;
  std::erase_if(used, [&](const auto& entry) {
    return is_settled_by_progress(entry.second, job.spec, job.faults.back());
  });
  return used;
}

int32_t used_by(const std::map<Cause, RestartsUsed>& used, Cause cause) {
  const auto found = used.find(cause);
  return found == used.end() ? 0 : found->second.count;
}

// Sums all causes except preemption, which is no evidence against the job.
int32_t used_by_faults(const std::map<Cause, RestartsUsed>& used) {
  int32_t count = 0;
  for (const auto& [cause, one] : used) count += cause == Cause::kPreempted ? 0 : one.count;
  return count;
}

bool is_same_fault(const Fault& a, const Fault& b) {
  return a.revision == b.revision && cause_of(a) == cause_of(b) && a.signal == b.signal &&
         a.exit_code == b.exit_code && a.rank == b.rank && a.rank.value() >= 0 &&
         a.last_step == b.last_step && a.last_step >= 0;
}

// Returns the nodes of the newest `faults` faults of `job`, oldest first, without duplicates.
std::string nodes_text(const Job& job, int32_t faults) {
  std::vector<std::string_view> names;
  for (size_t i = job.faults.size() - static_cast<size_t>(faults); i < job.faults.size(); ++i) {
    const std::string_view name = job.faults[i].worker.value();
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  std::string text(names.front());
  for (size_t i = 1; i < names.size(); ++i)
    absl::StrAppend(&text, i + 1 == names.size() ? " and " : ", ", av(names[i]));
  return text;
}

std::string used_up_text(const JobSpec& spec, Cause cause) {
  const int64_t allowed = restarts_allowed(spec, cause);
  if (allowed == 0) return "no restarts were allowed";
  const std::string kind =
      cause == Cause::kRankDied ? "" : absl::StrCat(" for \"", av(rule_of(cause).name), "\"");
  if (allowed == 1)
    return absl::StrCat("the one restart", kind, " is used up and made no progress");
  return absl::StrCat("all ", allowed, " restarts", kind, " are used up and made no progress");
}

}  // namespace

Instant hold_until(const Job& job, Instant ready, Duration reservation_time) {
  const bool holds = !job.faults.empty() && !is_preempted(job.faults.back());
  return holds ? ready + reservation_time : Instant{};
}

Duration backoff_before_restart(int32_t restart) {
  return restart <= 1 ? Duration::zero() : doubled(kBackoffFirst, restart - 2, kBackoffMax);
}

bool has_trained(const Fault& fault) { return fault.job_step >= 1 || durable_step(fault) >= 1; }

Duration rendezvous_time_of(const Job& job) {
  if (job.faults.empty() || !has_trained(job.faults.back())) return Duration::zero();
  const std::set<WorkerName> known(job.trained_on.begin(), job.trained_on.end());
  if (!std::ranges::all_of(job.placement,
                           [&](const RankPlacement& rank) { return known.contains(rank.worker); }))
    return Duration::zero();
  int32_t no_further = 0;
  for (size_t i = job.faults.size(); i > 1; --i) {
    if (job.faults[i - 1].job_step > job.faults[i - 2].job_step) break;
    ++no_further;
  }
  return doubled(kRendezvousAgain, no_further, kRendezvousMax);
}

Cause plain_cause_of(const Fault& fault) {
  if (fault.for_time_limit) return Cause::kTimeLimit;
  if (!fault.peer.value().empty()) return Cause::kLinkCut;
  if (fault.kind == IncidentKind::kGpuFault) return Cause::kGpuFault;  // for any exit code
  if (was_no_program(fault)) return Cause::kNotExecutable;
  if (ended_as(fault, ExitCode::kBadInput) && !has_trained(fault)) return Cause::kBadInput;
  if (ended_as(fault, ExitCode::kNotFinite)) return Cause::kNotFinite;
  if (is_preempted(fault)) return Cause::kPreempted;
  if (ended_as(fault, ExitCode::kStorageAway)) return Cause::kStorageAway;
  if (may_be_outage(fault)) return Cause::kStorageAway;
  switch (fault.kind) {
    case IncidentKind::kRankDied:
    case IncidentKind::kSlowRank:          // does not end an attempt
    case IncidentKind::kSlowerThanPlan:    // neither
    case IncidentKind::kSlowerThanBefore:  // neither
    case IncidentKind::kNotFinite:         // for a program only its output shows this
      return Cause::kRankDied;
    case IncidentKind::kWorkerLost:
      return Cause::kWorkerLost;
    case IncidentKind::kHang:
      return Cause::kHang;
    case IncidentKind::kOutOfMemory:
      return Cause::kOutOfMemory;
    case IncidentKind::kDiskFull:
      return Cause::kDiskFull;
    case IncidentKind::kNotStarted:
      return Cause::kNotStarted;
    case IncidentKind::kGpuFault:
      return Cause::kGpuFault;
  }
  return Cause::kRankDied;
}

Cause cause_of(const Fault& fault) {
  return fault.node_unfit ? Cause::kUnfitNode : plain_cause_of(fault);
}

int64_t restarts_allowed(const JobSpec& spec, Cause cause) {
  const CauseRule& rule = rule_of(cause);
  if (!rule.retries) return 0;
  if (rule.budget_fixed > 0) return rule.budget_fixed;
  return int64_t{spec.restarts_max} * rule.budget_times;
}

int32_t repeats_of(const Job& job) {
  const Fault& newest = job.faults.back();
  const bool is_outage = may_be_outage(newest);
  if (rule_of(cause_of(newest)).passes && !is_outage) return 1;
  int32_t times = 1;
  size_t oldest = job.faults.size() - 1;
  for (; oldest > 0 && is_same_fault(job.faults[oldest - 1], newest); --oldest) ++times;
  // Storage that was away for so long would not have failed at one step of one rank.
  const Duration lasted(newest.unix_ns - job.faults[oldest].unix_ns);
  return is_outage && lasted < kOutageMax ? 1 : times;
}

// Returns whether the attempt that ended by fault `i` came clearly further than the one before it:
// the program may resume from checkpoints that it does not report.
bool went_further(const Job& job, size_t i) {
  constexpr int64_t kStepsMargin = 10;
  const Fault& before = job.faults[i - 1];
  const Fault& after = job.faults[i];
  if (before.job_step >= 0 || after.job_step >= 0)
    return after.job_step > before.job_step + kStepsMargin;
  const Duration earlier =
      before.productive - (i >= 2 ? job.faults[i - 2].productive : Duration::zero());
  return after.productive - before.productive > 2 * earlier + std::chrono::seconds(10);
}

int32_t repeats_of_error(const Job& job) {
  const Fault& newest = job.faults.back();
  if (newest.error.empty()) return 0;
  const bool is_setup = is_of_setup(newest);
  std::set<WorkerName> nodes = {newest.worker};
  int32_t times = 1;
  for (size_t i = job.faults.size() - 1; i > 0; --i) {
    const Fault& before = job.faults[i - 1];
    const Fault& after = job.faults[i];
    const RestartsUsed then{1, durable_step(before), before.job_step, before.productive};
    // A node may lack what others have.
    const bool is_nodes = is_setup ? !nodes.insert(before.worker).second || has_trained(after)
                                   : before.node_unfit || after.node_unfit;
    if (before.error != newest.error || before.revision != newest.revision || is_nodes ||
        is_settled_by_progress(then, job.spec, after) || went_further(job, i))
      break;
    ++times;
  }
  // Among many nodes, two may well lack the same. Attempts on entirely different nodes show that
  // all lack it, and so does every further node.
  if (is_setup && !shares_no_node(job) && times < kUnfitNodesMax) return 1;
  return times;
}

NodeBlame blame_of_node(const Fault& fault) {
  const Cause cause = cause_of(fault);
  // A rank that lost its own GPU may exit with the code for a lost peer.
  const bool is_sound =
      may_be_outage(fault) || (cause != Cause::kGpuFault && ended_as(fault, ExitCode::kPeerLost));
  if (fault.worker.value().empty() || is_sound) return NodeBlame::kNothing;
  // A program that exits early at its start has its own reasons, which are independent of the node.
  const bool gave_up =
      plain_cause_of(fault) == Cause::kRankDied && fault.signal == 0 && fault.last_step < 0;
  return gave_up ? NodeBlame::kNothing : rule_of(cause).node;
}

namespace {

// Returns the decision about the job's revision, which is neither replaced nor rolled back.
RestartDecision decide_for_revision(const Job& job) {
  const Fault& fault = job.faults.back();
  const Cause cause = cause_of(fault);
  const CauseRule& rule = rule_of(cause);
  const std::map<Cause, RestartsUsed> used = restarts_that_count(job);
  const int32_t restart = used_by(used, cause) + 1;
  const int64_t allowed = restarts_allowed(job.spec, cause);
  const int32_t repeats = repeats_of(job);
  RestartDecision decision;
  if (!rule.retries) {
    decision.reason = absl::StrCat(fault.message, "; ", av(rule.why_not));
    return decision;
  }
  if (cause == Cause::kPreempted) {
    decision.counts = false;
    decision.restart = restart <= allowed || fault.for_update;
    const bool worker_said_so = fault.rank.value() < 0;
    decision.delay = worker_said_so ? Duration::zero() : kPreemptedDelay;
    decision.reason =
        decision.restart
            ? absl::StrCat("will resume from its checkpoint: ", fault.message)
            : absl::StrCat("preempted ", restart - 1, " times without progress; ", fault.message);
    return decision;
  }
  decision.is_futile = true;
  if (const int32_t ranks = ranks_with_same_error(job); ranks > 0) {
    decision.reason = absl::StrCat("the same error on ", ranks, " of ", job.placement.size(),
                                   " ranks", fault.place.empty() ? "" : " at ", fault.place,
                                   ", which a restart cannot change; ", fault.message);
    return decision;
  }
  if (const int32_t errors = repeats_of_error(job); errors >= kSameErrorMax) {
    decision.reason =
        absl::StrCat("the same error twice in a row, on ", nodes_text(job, errors), ": ",
                     fault.error, ", which a restart cannot change; ", fault.message);
    return decision;
  }
  if (repeats >= kSameFaultMax) {
    static_assert(kSameFaultMax == 3);
    decision.reason =
        absl::StrCat("the same fault at step ", fault.last_step, " three times in a row, on ",
                     nodes_text(job, repeats), ": ", fault.message);
    return decision;
  }
  if (restart > allowed) {
    // Other causes are those of the infrastructure, which may be sound at the next start.
    decision.is_futile = allowed > 0 && (cause == Cause::kRankDied || cause == Cause::kHang);
    decision.reason = absl::StrCat(fault.message, "; ", used_up_text(job.spec, cause));
    return decision;
  }
  decision.is_futile = false;
  decision.restart = true;
  decision.delay = backoff_before_restart(used_by_faults(used) + 1);
  // Full disks, storage that is away, and nodes that the job avoids but had to use need some time.
  if (cause == Cause::kDiskFull || cause == Cause::kStorageAway || may_be_outage(fault) ||
      was_avoided(job))
    decision.delay = std::max(decision.delay, doubled(kMendedDelay, restart - 1, kMendedDelayMax));
  decision.reason = absl::StrFormat(
      "restart %d of %d%s%s: %s", restart, allowed,
      decision.delay > Duration::zero() ? absl::StrFormat(" in %g s", to_seconds(decision.delay))
                                        : std::string(),
      repeats > 1 ? absl::StrFormat(", the same fault at step %d again, and away from %s if others "
                                    "are free",
                                    fault.last_step, fault.worker.value())
                  : avoidance_text(job),
      fault.message);
  return decision;
}

}  // namespace

RestartDecision decide_restart(const Job& job) {
  RestartDecision decision = fails_trial(job) ? RestartDecision{} : decide_for_revision(job);
  absl::StrAppend(&decision.reason, no_rollback_text(job));
  const Fault& fault = job.faults.back();
  if (decision.restart || fault.for_time_limit) return decision;
  if (job.update) {
    decision = {};
    decision.restart = decision.takes_update = true;
    decision.counts = false;
    decision.reason =
        absl::StrCat("revision ", job.update->note.revision, " (", job.update->note.change,
                     ") replaces revision ", job.revision, ", which failed: ", fault.message);
  } else if (may_fail_trial(job)) {
    decision = {};
    decision.restart = decision.rolls_back = true;
    decision.counts = false;
    decision.reason = rollback_text(job);
  }
  return decision;
}

void count_restart(Job& job, const RestartDecision& decision) {
  job.restarts_used = restarts_that_count(job);
  if (decision.counts) ++job.restarts;
  const Fault& fault = job.faults.back();
  // When the nodes of a pool are replaced one by one, each node may be preempted before the job is
  // up on the other nodes. The job cannot make progress meanwhile, so these preemptions do not
  // count.
  if (is_preempted(fault) && fault.rank.value() < 0 && fault.last_step < 0) return;
  if (fault.for_update) return;
  RestartsUsed& used = job.restarts_used[cause_of(fault)];
  used = {used.count + 1, durable_step(fault), fault.job_step, fault.productive};
}

}  // namespace muster::coordinator
