// Whether an attempt that ended by a fault is made again, and how the end of a rank is told to
// people. Pure functions of the job's record.
#pragma once

#include <cstdint>
#include <string>

#include "common/exit_code.h"
#include "common/time.h"
#include "coordinator/core/job.h"

namespace muster::coordinator {

// A job that is preempted this often makes no way; someone has to look at it.
constexpr int32_t kPreemptionsMax = 100;
// Back-off before the n-th restart: none, then 0.5 s doubling up to this bound. The first restart
// is immediate, because most faults are a single dead process or node.
constexpr Duration kBackoffFirst = std::chrono::milliseconds(500);
constexpr Duration kBackoffMax = std::chrono::seconds(30);

// Who told a rank to leave may be about to tell its worker, too: placed at once, a preempted job could land there again. A worker
// that has said that it leaves gets no job.
constexpr Duration kPreemptedDelay = std::chrono::seconds(6);

struct RestartDecision {
  bool restart = false;
  bool counts = true;  // against restarts_max
  Duration delay{};
  std::string reason;  // one sentence, the cause included
};

// Judges the newest fault of `job`. Requires that there is one.
RestartDecision decide_restart(const Job& job);

Duration backoff_before_restart(int32_t restart);

// A program that is not ours may end with any of our codes, and means nothing by it.
template <class End>
constexpr bool ended_as(const End& end, ExitCode code) {
  return !end.of_program && end.signal == 0 && end.exit_code == to_int(code);
}
// The rank left because another rank was gone: never the one to blame.
constexpr bool is_victim(const RankExit& exit) { return ended_as(exit, ExitCode::kPeerLost); }
constexpr bool is_success(const RankExit& exit) {
  return exit.signal == 0 && exit.exit_code == to_int(ExitCode::kOk);
}
constexpr bool is_preempted(const RankExit& exit) { return ended_as(exit, ExitCode::kPreempted); }
inline bool is_preempted(const Fault& fault) { return ended_as(fault, ExitCode::kPreempted); }

// What `muster run` ends with when this fault ends the job: the rank's own code, or 128 + signal as
// shells have it.
int32_t exit_code_of(const Fault& fault);

// "rank 2 on node7 was killed by signal 9 (SIGKILL) after 17 steps: <detail>"
Fault fault_of(const RankExit& exit, const WorkerName& worker, int64_t unix_ns);

// Of an attempt whose ranks have lost a peer, and no rank has died: one that was through too early is to blame, or one that alone has not
// reported a loss; else the message says which have not.
Fault fault_without_culprit(const Job& job, int64_t unix_ns);

}  // namespace muster::coordinator
