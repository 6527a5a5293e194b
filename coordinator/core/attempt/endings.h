// Decides how an attempt ends: which fault ends it, and the outcome for the job when all ranks are
// gone. Pure functions of the job's record and the attempt.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/job/ids.h"
#include "common/time/time.h"
#include "coordinator/core/attempt/live_attempt.h"
#include "coordinator/core/core_options.h"
#include "coordinator/core/fleet/fleet.h"
#include "coordinator/core/records/core_time.h"
#include "coordinator/core/records/job.h"

namespace muster::coordinator {

// The fault that ends an attempt, and the grace for its remaining ranks.
struct Ending {
  Fault fault;
  Duration grace{};
};

// Returns whether the job has an attempt that nothing has ended yet.
bool is_undecided(const Job& job);

// Returns the ending that follows from the ranks' exits. The culprit is the first reported exit
// that explains the other exits; there may be none. If ranks have reported only consequences of a
// fault, early exits decide and lost links of their nodes (lost_link.h), and for programs also
// their counters and the order of the reports (first_fault.h). Requires an attempt in which a rank
// has failed.
Ending ending_of_exits(const Job& job, const CrashEvidence& crash, const CoreOptions& options,
                       int64_t unix_ns);
// Returns the ending of an attempt whose ranks were not up in time, or that waited in vain for the
// culprit's report after victims had ended; nullopt if neither applies. Requires is_undecided().
std::optional<Ending> ending_of_deadlines(const Job& job, const LiveAttempt& attempt,
                                          const Fleet& fleet, const CoreOptions& options,
                                          const CoreTime& time);

// The consequence of the end of a rank.
enum class ExitMeaning {
  kNone,     // the rank succeeded, or the attempt is already ending
  kVictim,   // the rank ended because a peer was lost; the peer's report is awaited
  kCulprit,  // the rank's end is the fault that ends the attempt
};
// Returns the consequence of `exit` on `worker` for the job's attempt.
ExitMeaning meaning_of(const RankExit& exit, const WorkerName& worker, const Job& job,
                       const LiveAttempt& attempt, const Fleet& fleet, Instant now);

// Returns the fault of an attempt that is preempted because `worker` is leaving or evacuated.
// `why`: a clause.
Fault fault_of_preemption(const Job& job, const WorkerName& worker, std::string_view why,
                          int64_t unix_ns);
// Returns the fault of an attempt that ends because the job's time limit is over.
Fault fault_of_time_limit(const Job& job, int64_t unix_ns);
// Returns the fault of a rank that `worker` neither runs nor has reported as ended.
Fault fault_of_missing_rank(Rank rank, const WorkerName& worker, int64_t unix_ns);
// Returns the fault of the loss of all ranks on `worker`, after `last_step` completed steps. `why`:
// a clause.
Fault fault_of_lost_worker(const WorkerName& worker, std::string_view why, int64_t last_step,
                           int64_t unix_ns);
// Returns the fault of the first rank that was not up within `start_budget`. Requires that there is
// one.
Fault fault_of_slow_start(const Job& job, Duration start_budget, int64_t unix_ns);

// Adds the job's progress over all attempts to `fault`. `resumed_from`: the step from which the
// ending attempt resumed, so this step was saved on shared storage or in the memory of nodes.
void add_progress(const Job& job, int64_t resumed_from, Fault& fault);

// The outcome of an attempt, from the exits of its ranks.
struct Outcome {
  enum class Kind {
    kFinished,  // the job ends with `state`, `exit_code` and `reason`
    kEnded,     // the job's newest fault has ended the attempt
    kFault,     // the exits are a fault: see ending_of_exits()
  };
  Kind kind{};
  JobState state{};
  int32_t exit_code = 0;
  std::string reason;
};
// Returns the outcome of the current attempt. Requires that every rank has ended. `stuck`: the
// number of its ranks that cannot be killed.
Outcome outcome_of(const Job& job, int64_t stuck);

}  // namespace muster::coordinator
