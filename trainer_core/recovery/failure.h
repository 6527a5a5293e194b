// How a rank's errors become its exit code.
#pragma once

#include <absl/status/status.h>

#include "common/exit_code.h"

namespace muster::trainer {

// Of an error before the first step. Lost or silent peers make kPeerLost: this rank is a victim, not a cause. What outside
// input or a disk did makes kBadInput: trying again cannot help. The rest is kFailure.
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

// Of a collective's error once training has begun. The input was found good then: nothing is kBadInput any more, nor is
// what a disk does to a checkpoint or to the data, which is kFailure, so that the job is tried again. One that is full has a code of its
// own: somebody has to make room.
inline ExitCode exit_code_of_step(const absl::Status& status) {
  if (status.code() == absl::StatusCode::kResourceExhausted) return ExitCode::kDiskFull;
  const ExitCode code = exit_code_for(status);
  return code == ExitCode::kBadInput ? ExitCode::kFailure : code;
}

}  // namespace muster::trainer
