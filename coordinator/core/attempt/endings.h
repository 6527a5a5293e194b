// How an attempt ends: the fault that ends it, and what follows when all its ranks are gone. Pure
// functions of the job's record and the attempt.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/ids.h"
#include "common/time.h"
#include "coordinator/core/attempt/live_attempt.h"
#include "coordinator/core/core_options.h"
#include "coordinator/core/fleet/fleet.h"
#include "coordinator/core/records/job.h"
#include "coordinator/core/records/step_time.h"

namespace muster::coordinator {

// The fault that ends an attempt, and the grace of the ranks that are left.
struct Ending {
  Fault fault;
  Duration grace{};
};

// Returns whether the job has an attempt that nothing has ended yet.
bool is_undecided(const Job& job);
bool all_ranks_ended(const Job& job);

// Returns the ending that the exits show, in the order of their reports: the first exit that
// explains the others is the culprit; there may be none. Requires an attempt in which a rank has
// failed.
Ending ending_of_exits(const Job& job, const CoreOptions& options, int64_t unix_ns);
// Returns the ending of an attempt whose ranks were not up in time, or whose victims have waited
// long enough for the culprit's report; nullopt: neither. Requires is_undecided().
std::optional<Ending> ending_of_deadlines(const Job& job, const LiveAttempt& attempt,
                                          const Fleet& fleet, const CoreOptions& options,
                                          const StepTime& time);

// The consequence of the end of a rank.
enum class ExitMeaning {
  kNone,     // it succeeded, or the attempt is ending already
  kVictim,   // a peer was lost first, and its own report is awaited
  kCulprit,  // it ends the attempt
};
ExitMeaning meaning_of(const RankExit& exit, const WorkerName& worker, const Job& job,
                       const LiveAttempt& attempt, const Fleet& fleet, Instant now);

// The attempt is preempted, because `worker` is leaving or evacuated. `why`: a clause.
Fault fault_of_preemption(const Job& job, const WorkerName& worker, std::string_view why,
                          int64_t unix_ns);
// `worker` neither runs nor has reported the rank.
Fault fault_of_missing_rank(Rank rank, const WorkerName& worker, int64_t unix_ns);
// The ranks on `worker` are lost, which had completed `last_step` steps. `why`: a clause.
Fault fault_of_lost_worker(const WorkerName& worker, std::string_view why, int64_t last_step,
                           int64_t unix_ns);
// The first rank that is not up was not up in time. Requires one.
Fault fault_of_slow_start(const Job& job, Duration start_budget, int64_t unix_ns);

// Adds the job's progress over all attempts to `fault`. `resumed_from`: the step from which the
// ending attempt resumed; that step was saved, if only in the memory of nodes.
void add_progress(const Job& job, int64_t resumed_from, Fault& fault);

// The consequence of the ends of an attempt's ranks.
struct Outcome {
  enum class Kind {
    kPending,   // ranks have not ended
    kFinished,  // the job ends: see the other fields
    kEnded,     // the attempt has ended by the job's newest fault
    kFault,     // the exits are a fault: see ending_of_exits()
  };
  Kind kind = Kind::kPending;
  JobState state{};
  int32_t exit_code = 0;
  std::string reason;
};
// `stuck`: the number of its ranks that cannot be killed.
Outcome outcome_of(const Job& job, int64_t stuck);

}  // namespace muster::coordinator
