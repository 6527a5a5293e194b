// The record of one attempt of a job, as the coordinator stores it.
#pragma once

#include <cstdint>
#include <string>

#include "common/job/ids.h"

namespace muster::coordinator {

// The number of ended attempts stored for each job: the newest ones.
constexpr uint32_t kAttemptsKeptMax = 1'000;
// The maximum size of AttemptRecord::workers.
constexpr size_t kAttemptWorkersBytesMax = 4'096;

// An attempt that has ended, or the current attempt up to now.
struct AttemptRecord {
  JobId job;
  Attempt attempt{0};
  int64_t started_unix_ns = 0;
  int64_t up_unix_ns = 0;     // the time at which every rank was up; 0: this was never the case
  int64_t ended_unix_ns = 0;  // 0: the attempt has not ended
  int32_t nodes = 0;
  int32_t ranks = 0;
  // The names of the nodes in the order of their ranks, in the form of fold_names().
  std::string workers;
  // The step from which the attempt resumed, and the highest step that a rank has completed; -1:
  // not known, or none.
  int64_t first_step = -1;
  int64_t last_step = -1;
  std::string end;         // why it ended, in one sentence; empty: it has not ended
  IncidentId incident{0};  // the incident of the fault that ended it; 0: none
  int32_t revision = 0;    // Job::revision; 0: not known

  friend bool operator==(const AttemptRecord&, const AttemptRecord&) = default;
};

}  // namespace muster::coordinator
