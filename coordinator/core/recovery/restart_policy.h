// Decides whether a job is restarted after a fault, and how the end of a rank is described to
// users. Pure functions of the job's record; cause.h contains the table.
//
// restarts_max is a budget per cause, and durable progress restores it: at each fault, the count of
// a cause is reset if its newest restart used an older checkpoint than the job has now. A job that
// saves no checkpoints must get kStepsOfProgress steps further than ever before; a program that
// reports no steps either must run for kSilentProgress in all.
//
// A fault that repeats (same cause, code, signal and rank after the same number of steps, in
// consecutive attempts) is moved to another node once. The third time ends the job, even if budget
// is left.
#pragma once

#include <cstdint>
#include <string>

#include "common/exit_code.h"
#include "common/time.h"
#include "coordinator/core/records/job.h"

namespace muster::coordinator {

// Back-off before the n-th restart: none before the first, then 0.5 s, doubling up to this bound.
// The first restart is immediate, because most faults are a single dead process or node.
constexpr Duration kBackoffFirst = std::chrono::milliseconds(500);
constexpr Duration kBackoffMax = std::chrono::seconds(30);

// Without checkpoints no step is durable: a job that gets this many steps further than ever before
// is not in a crash loop.
constexpr int64_t kStepsOfProgress = 1'000;
// A program that reports neither steps nor checkpoints shows only that it runs. One that ran for
// this long is in no crash loop. A job of weeks that dies twice a day must not end on its second
// day; a program that always dies after some hours ends within a few days.
constexpr Duration kSilentProgress = std::chrono::hours(6);
// The number of equal faults in a row that ends the job: the node may cause the first repeat; the
// program causes the second.
constexpr int32_t kSameFaultMax = 3;

struct RestartDecision {
  bool restart = false;
  bool counts = true;  // towards the job's restarts
  Duration delay{};
  std::string reason;  // one sentence, including the cause
};

// Judges the newest fault of `job`. Requires that there is one.
RestartDecision decide_restart(const Job& job);

// Records the decision to restart after the newest fault.
void count_restart(Job& job, const RestartDecision& decision);

// Returns until when a job that is ready at `ready` reserves its remaining nodes. A preempted job
// reserves none, because its missing node will not return.
Instant hold_until(const Job& job, Instant ready, Duration keep_nodes);

Duration backoff_before_restart(int32_t restart);

Cause cause_of(const Fault& fault);
// The cause independent of the node: never kUnfitNode.
Cause plain_cause_of(const Fault& fault);
// Returns whether the job has trained before: then a missing file or device is missing only on this
// node, or temporarily.
bool has_trained(const Fault& fault);
// Returns the budget of restarts after `cause` without durable progress in between.
int64_t restarts_allowed(const JobSpec& spec, Cause cause);
// Returns how many times in a row the newest fault has occurred; 1: for the first time.
int32_t repeats_of(const Job& job);
// Returns how much `fault` counts against its node.
NodeBlame blame_of_node(const Fault& fault);

// Returns whether a rank of the built-in trainer ended with `code`. A user program may use the same
// codes with other meanings.
template <class End>
constexpr bool ended_as(const End& end, ExitCode code) {
  return !end.of_program && end.signal == 0 && end.exit_code == to_int(code);
}
// The rank left because another rank was gone. It is never to blame.
constexpr bool is_victim(const RankExit& exit) {
  return ended_as(exit, ExitCode::kPeerLost) && exit.cause != ExitCause::kGpuFault;
}
constexpr int32_t kSigabrt = 6;
// The same for user programs, which have no exit code for it: a program that fails, or aborts as
// NCCL's watchdog does, while a peer's worker is away has most likely lost that peer.
constexpr bool may_be_victim(const RankExit& exit) {
  return exit.of_program && exit.cause == ExitCause::kUnknown &&
         (exit.signal == kSigabrt || (exit.signal == 0 && exit.exit_code != 0));
}
// The rank ended its job successfully. User programs that save at SIGTERM often exit with 0
// although the job is not complete; the built-in trainer exits with 0 only when it has finished.
constexpr bool is_success(const RankExit& exit) {
  return exit.signal == 0 && exit.exit_code == to_int(ExitCode::kOk) &&
         !(exit.of_program && exit.stop_ordered);
}
constexpr bool is_preempted(const RankExit& exit) { return ended_as(exit, ExitCode::kPreempted); }
inline bool is_preempted(const Fault& fault) { return ended_as(fault, ExitCode::kPreempted); }

// Returns the exit code of `muster run` if this fault ends the job: the rank's exit code, or 128 +
// signal as in shells.
int32_t exit_code_of(const Fault& fault);

// "rank 2 on node7 was killed by signal 9 (SIGKILL) after 17 steps: <detail>"
Fault fault_of(const RankExit& exit, const WorkerName& worker, int64_t unix_ns);

// Returns the fault of an attempt in which ranks have lost a peer although no rank has died. A rank
// that finished too early is to blame, or the only rank that has not reported a loss; otherwise the
// message lists the ranks that have not.
Fault fault_without_culprit(const Job& job, int64_t unix_ns);

}  // namespace muster::coordinator
