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

// Returns the time before the end of the limit at which the ranks of `job` are ordered to save and
// leave: as late as its saves and steps permit, but not in the first half of the limit. `grace`:
// the time for jobs whose saves are not known. Requires a time limit.
inline Duration time_limit_lead(const Job& job, Duration grace) {
  const Duration limit = std::chrono::seconds(job.spec.time_limit_seconds);
  return std::min<Duration>(drain_lead(job, grace), limit / 2);
}

inline std::string time_limit_text(const Job& job) {
  return absl::StrCat("its time limit of ", job.spec.time_limit_seconds, " s is over");
}

}  // namespace muster::coordinator
