// Decides whether a job is restarted after a fault, by pure functions of the job's record.
// records/cause.h contains the table of causes.
//
// restarts_max is a budget per cause, and durable progress restores the budget: at each fault, the
// count of a cause is reset if the job has a newer checkpoint than at the cause's newest restart.
// For a job that saves no checkpoints, progress is kStepsOfProgress steps beyond its highest step;
// for a program that reports no steps either, kSilentProgress of running time in all.
//
// A fault that repeats (same cause, code, signal and rank after the same number of steps, in
// consecutive attempts) is moved to another node once. The third such fault ends the job, even if
// its budget is not used up. If a program ends twice by the same exception at the same place of its
// code, on any ranks and nodes and without durable progress in between, the second fault ends the
// job.
#pragma once

#include <cstdint>
#include <string>

#include "common/process/exit_code.h"
#include "common/process/job_exit_code.h"
#include "common/time/time.h"
#include "coordinator/core/records/job.h"

namespace muster::coordinator {

// Back-off before the n-th restart: none before the first, then 0.5 s, doubling up to this bound.
// The first restart is immediate, because most faults are a single dead process or node.
constexpr Duration kBackoffFirst = std::chrono::milliseconds(500);
constexpr Duration kBackoffMax = std::chrono::seconds(30);

// A job without checkpoints has no durable step, but a job that completes this many steps beyond
// its highest step is not in a crash loop.
constexpr int64_t kStepsOfProgress = 1'000;
// A program that reports neither steps nor checkpoints shows only that it runs, and after this
// running time it is not in a crash loop. A job of several weeks that dies twice a day must not be
// ended on its second day; a program that always dies after some hours is ended within a few days.
constexpr Duration kSilentProgress = std::chrono::hours(6);
// The number of equal faults in a row that ends the job: the node may cause the second fault, but
// not the third one on another node.
constexpr int32_t kSameFaultMax = 3;
// The number of equal exceptions in a row that ends the job: the program's own code raises them,
// and neither node nor rank matter.
constexpr int32_t kSameErrorMax = 2;

// The time for which missing or damaged files of a job that has trained count as an outage of
// storage, even if they end the same rank at the same step again and again.
constexpr Duration kOutageMax = std::chrono::hours(1);

struct RestartDecision {
  bool restart = false;
  bool counts = true;  // whether the restart counts towards restarts_max
  // The job ends because of its own faults, which come again: a further start would make no
  // progress. Its exit code is then kNoProgressExitCode, and no further allocation is requested.
  bool is_futile = false;
  // The job restarts with its former revision (recovery/revisions.h).
  bool rolls_back = false;
  // The job restarts with its pending update, where it would otherwise end or roll back: the update
  // may mend the fault.
  bool takes_update = false;
  Duration delay{};
  std::string reason;  // one sentence, including the cause
};

// Returns the decision after the newest fault of `job`. Requires that the job has a fault.
RestartDecision decide_restart(const Job& job);

// Records the decision to restart after the newest fault.
void count_restart(Job& job, const RestartDecision& decision);

// Returns the time until which a job that is ready at `ready` reserves its remaining nodes. A
// preempted job reserves no nodes, because its missing node will not return.
Instant hold_until(const Job& job, Instant ready, Duration reservation_time);

// Returns the back-off before the `restart`-th restart, from 1.
Duration backoff_before_restart(int32_t restart);

// The time within which the ranks of an attempt must find each other if the job has trained on all
// its nodes, doubling with each attempt that came no further, up to the trainer's default. All
// programs are installed there, so a missing rank is most likely cut off.
constexpr Duration kRendezvousAgain = std::chrono::seconds(30);
constexpr Duration kRendezvousMax = std::chrono::minutes(2);
// Returns that time for the attempt that is placed; zero if the job has not trained on its nodes.
Duration rendezvous_time_of(const Job& job);

// Returns the cause of the fault; kUnfitNode if the fault's node is unfit for the job.
Cause cause_of(const Fault& fault);
// Returns the cause of the fault itself, which is never kUnfitNode.
Cause plain_cause_of(const Fault& fault);
// Returns whether the job had trained before the fault: then a file or device that is missing now
// is missing only on this node, or temporarily.
bool has_trained(const Fault& fault);
// Returns the budget of restarts after `cause` without durable progress between them.
int64_t restarts_allowed(const JobSpec& spec, Cause cause);
// Returns the number of times in a row that the newest fault has occurred; 1: for the first time.
int32_t repeats_of(const Job& job);
// Returns the number of times in a row that the exception of the newest fault has occurred; 0: the
// fault has none.
int32_t repeats_of_error(const Job& job);
// Returns how much `fault` counts against its node.
NodeBlame blame_of_node(const Fault& fault);

// Returns whether a rank of the built-in trainer ended with `code`. A user program may use the same
// codes with other meanings.
template <class End>
constexpr bool ended_as(const End& end, ExitCode code) {
  return !end.of_program && end.signal == 0 && end.exit_code == to_int(code);
}
// Returns whether the rank ended because it had lost another rank. Such a rank is never to blame.
constexpr bool is_victim(const RankExit& exit) {
  return ended_as(exit, ExitCode::kPeerLost) && exit.cause != ExitCause::kGpuFault;
}
constexpr int32_t kSigabrt = 6;
// Returns whether the exit of a user program may be that of a victim. Programs have no exit code
// for a lost peer: a program that fails, or aborts as NCCL's watchdog does, while a peer's worker
// is away has most likely lost that peer.
constexpr bool may_be_victim(const RankExit& exit) {
  return exit.of_program && exit.cause == ExitCause::kUnknown &&
         (exit.signal == kSigabrt || (exit.signal == 0 && exit.exit_code != 0));
}
// Returns whether the rank has finished the job's work. User programs that save at SIGTERM often
// exit with 0 although the job is not complete; the built-in trainer exits with 0 only when it has
// finished.
constexpr bool is_success(const RankExit& exit) {
  return exit.signal == 0 && exit.exit_code == to_int(ExitCode::kOk) &&
         !(exit.of_program && exit.stop_ordered);
}
// Return whether a rank of the built-in trainer saved a checkpoint and exited because it was
// preempted.
constexpr bool is_preempted(const RankExit& exit) { return ended_as(exit, ExitCode::kPreempted); }
inline bool is_preempted(const Fault& fault) { return ended_as(fault, ExitCode::kPreempted); }

// Returns the exit code of `muster run` if this fault ends the job: the rank's exit code, or 128 +
// signal as in shells. Another code for the end of its time limit.
constexpr int32_t exit_code_of(const Fault& fault) {
  constexpr int32_t kSignalBase = 128;
  if (fault.for_time_limit) return kTimeLimitExitCode;
  if (fault.signal > 0) return kSignalBase + fault.signal;
  return fault.exit_code > 0 ? fault.exit_code : to_int(ExitCode::kFailure);
}

}  // namespace muster::coordinator
