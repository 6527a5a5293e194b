// The outcome of a requested checkpoint, as `muster checkpoint` decides it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <absl/status/statusor.h>

#include "muster/v1/muster.pb.h"

namespace muster::cli {

// The state of the job when the checkpoint was requested.
struct CheckpointRequest {
  uint32_t attempt = 0;
  int64_t after_step = 0;
  uint64_t failed = 0;  // saves that have failed
};

// Returns the checkpoint folder of a step; "" if the config has none.
std::string checkpoint_folder(const v1::Job& job, int64_t step);

// Returns whether checkpoint_outcome() needs the attempts after the request's.
bool needs_history(const v1::Job& job, const CheckpointRequest& request);

// Returns the step that was saved, or nullopt while that is not decided. Returns Aborted if nothing
// was saved, and Unknown, with the facts, if that cannot be known. The step from which the next
// attempt resumes is evidence, unless it may be that of a copy in the memory of nodes; then, and
// for a job that has ended, the complete checkpoint in the folder is, if this machine sees it.
// `history`: the newest attempts, newest first.
absl::StatusOr<std::optional<int64_t>> checkpoint_outcome(const v1::Job& job,
                                                          const CheckpointRequest& request,
                                                          const v1::GetJobHistoryResponse& history);

}  // namespace muster::cli
