// Whether an attempt that ended by a fault is made again, and how the end of a rank is reported to
// people. Pure functions of the job's record; cause.h has the table.
//
// restarts_max is a budget for each cause, and durable progress gives it back: at each fault, the
// count of every cause is reset whose newest restart was made with an older checkpoint than the job
// has now. A job that saves none has to come kStepsOfProgress further than it ever was, and a
// program that reports no steps, either, to run for kSilentProgress in all.
//
// A fault that repeats (same cause, code, signal and rank after the same number of steps, one
// attempt after the other) is moved to another node once; the third time ends the job, whatever is
// left of the budget.
#pragma once

#include <cstdint>
#include <string>

#include "common/exit_code.h"
#include "common/time.h"
#include "coordinator/core/records/job.h"

namespace muster::coordinator {

// Back-off before the n-th restart: none, then 0.5 s doubling up to this bound. The first restart
// is immediate, because most faults are a single dead process or node.
constexpr Duration kBackoffFirst = std::chrono::milliseconds(500);
constexpr Duration kBackoffMax = std::chrono::seconds(30);

// Without a checkpoint nothing is safe: so much further than ever before is no crash loop any more.
constexpr int64_t kStepsOfProgress = 1'000;
// A program that reports neither steps nor checkpoints shows nothing but that it runs. One that ran
// for so long is in no crash loop, and a job of weeks that dies twice a day is not to end on its
// second day; a program that always dies after some hours ends within a few days.
constexpr Duration kSilentProgress = std::chrono::hours(6);
// The same fault this many times in a row: the first repeat may be the node, the second is the
// program.
constexpr int32_t kSameFaultMax = 3;

struct RestartDecision {
  bool restart = false;
  bool counts = true;  // as one of the job's restarts
  Duration delay{};
  std::string reason;  // one sentence, the cause included
};

// Judges the newest fault of `job`. Requires that there is one.
RestartDecision decide_restart(const Job& job);

// Notes that it was decided to restart after the newest fault.
void count_restart(Job& job, const RestartDecision& decision);

// Until when a job that is ready at `ready` holds what is left of its nodes. A job that was
// preempted holds none: its node is gone for good.
Instant hold_until(const Job& job, Instant ready, Duration keep_nodes);

Duration backoff_before_restart(int32_t restart);

Cause cause_of(const Fault& fault);
// The cause wherever the rank was: never kUnfitNode.
Cause plain_cause_of(const Fault& fault);
// The job has trained before: a missing file or device is missing on this node, or for now.
bool has_trained(const Fault& fault);
// Restarts after `cause` without durable progress in between.
int64_t restarts_allowed(const JobSpec& spec, Cause cause);
// How often the newest fault has come in a row; 1: for the first time.
int32_t repeats_of(const Job& job);
// The newest fault says something of the node that it was on.
NodeBlame blame_of_node(const Fault& fault);

// A program that is not ours may end with any of our codes, and means nothing by it.
template <class End>
constexpr bool ended_as(const End& end, ExitCode code) {
  return !end.of_program && end.signal == 0 && end.exit_code == to_int(code);
}
// The rank left because another rank was gone: never the one to blame.
constexpr bool is_victim(const RankExit& exit) {
  return ended_as(exit, ExitCode::kPeerLost) && exit.cause != ExitCause::kGpuFault;
}
constexpr int32_t kSigabrt = 6;
// A program has no word for that; one that fails, or aborts as NCCL's watchdog does, while a peer's
// worker is away has most likely lost that peer.
constexpr bool may_be_victim(const RankExit& exit) {
  return exit.of_program && exit.cause == ExitCause::kUnknown &&
         (exit.signal == kSigabrt || (exit.signal == 0 && exit.exit_code != 0));
}
// Programs that save at SIGTERM end with code 0 as often as not: that is no end of the job. Our
// trainer ends so when it is through.
constexpr bool is_success(const RankExit& exit) {
  return exit.signal == 0 && exit.exit_code == to_int(ExitCode::kOk) &&
         !(exit.of_program && exit.told_to_stop);
}
constexpr bool is_preempted(const RankExit& exit) { return ended_as(exit, ExitCode::kPreempted); }
inline bool is_preempted(const Fault& fault) { return ended_as(fault, ExitCode::kPreempted); }

// The exit code of `muster run` when this fault ends the job: the rank's own code, or 128 + signal
// as shells have it.
int32_t exit_code_of(const Fault& fault);

// "rank 2 on node7 was killed by signal 9 (SIGKILL) after 17 steps: <detail>"
Fault fault_of(const RankExit& exit, const WorkerName& worker, int64_t unix_ns);

// Returns the fault of an attempt whose ranks have lost a peer while no rank has died: one that was
// through too early is to blame, or one that alone has not reported a loss; else the message says
// which have not.
Fault fault_without_culprit(const Job& job, int64_t unix_ns);

}  // namespace muster::coordinator
