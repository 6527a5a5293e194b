// How long before the end of its time limit a job is ordered to leave its nodes. Pure.
#pragma once

#include <algorithm>
#include <chrono>
#include <string>

#include <absl/strings/str_cat.h>

#include "common/time/time.h"
#include "coordinator/core/records/job.h"
#include "coordinator/core/recovery/drain.h"

namespace muster::coordinator {

// The least grace of ranks that are ordered to leave, also after the end of the limit.
constexpr Duration kTimeLimitGraceMin = std::chrono::seconds(1);
// The time for programs whose saves are not known: Slurm's default for KillWait. Programs that do
// not save leave at once and lose this much of their limit.
constexpr Duration kTimeLimitProgramNotice = std::chrono::seconds(30);

// Returns the time before the end of the limit at which ranks whose saves are not known are ordered
// to save and leave: the notice in the spec, or else at most half of the limit. `trainer_notice`:
// the time for jobs of the trainer. Requires a time limit.
inline Duration first_time_limit_lead(const JobSpec& spec, Duration trainer_notice) {
  if (spec.time_limit_notice_seconds > 0)
    return std::chrono::seconds(spec.time_limit_notice_seconds);
  const Duration limit = std::chrono::seconds(spec.time_limit_seconds);
  return std::min<Duration>(spec.is_program() ? kTimeLimitProgramNotice : trainer_notice,
                            limit / 2);
}

// Returns the same for the ranks of `job`: without a notice in its spec as late as its saves and
// steps permit, but not in the first half of the limit.
inline Duration time_limit_lead(const Job& job, Duration trainer_notice) {
  const Duration first = first_time_limit_lead(job.spec, trainer_notice);
  if (job.spec.time_limit_notice_seconds > 0) return first;
  const Duration limit = std::chrono::seconds(job.spec.time_limit_seconds);
  return std::min<Duration>(drain_lead(job, first), limit / 2);
}

// Returns the reason of a job whose ranks have left, or are ordered to leave.
inline std::string time_limit_text(const Job& job) {
  return absl::StrCat("it reaches its time limit of ", job.spec.time_limit_seconds, " s");
}

}  // namespace muster::coordinator
