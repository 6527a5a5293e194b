// Maps the errors of a rank to its exit code.
#pragma once

#include <absl/status/status.h>

#include "common/exit_code.h"

namespace muster::trainer {

// Returns the exit code for an error before the first step. A peer that is lost or does not respond
// gives kPeerLost, because this rank is not the cause. Internal, Unknown and Aborted give kFailure.
// Any other code comes from the input or a disk and gives kBadInput, because a retry cannot help.
inline ExitCode exit_code_for(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return ExitCode::kOk;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
      return ExitCode::kPeerLost;
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kUnknown:
    case absl::StatusCode::kAborted:
      return ExitCode::kFailure;
    default:
      return ExitCode::kBadInput;
  }
}

// Returns the exit code for an error after training has begun. The input is then known to be valid,
// so the code is never kBadInput: a disk error gives kFailure, and the job is retried. A full disk
// gives kDiskFull, because a person must free space.
inline ExitCode exit_code_of_step(const absl::Status& status) {
  if (status.code() == absl::StatusCode::kResourceExhausted) return ExitCode::kDiskFull;
  const ExitCode code = exit_code_for(status);
  return code == ExitCode::kBadInput ? ExitCode::kFailure : code;
}

}  // namespace muster::trainer
