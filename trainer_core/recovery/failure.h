// Maps the errors of a rank to its exit code.
#pragma once

#include <absl/status/status.h>

#include "common/process/exit_code.h"

namespace muster::trainer {

// Marks an error of the checkpoint directory of a job that has trained: the directory was good, so
// its storage is away for a while, and a later attempt may find it.
inline absl::Status storage_away(absl::Status status) {
  status.SetPayload("muster.storage_away", absl::Cord());
  return status;
}
inline bool is_storage_away(const absl::Status& status) {
  return status.GetPayload("muster.storage_away").has_value();
}

// Returns whether an error is of a file system, and not of peers, of the content of a file or of a
// disk that is full.
inline bool is_of_storage(const absl::Status& status) {
  return status.code() == absl::StatusCode::kNotFound ||
         status.code() == absl::StatusCode::kPermissionDenied ||
         status.code() == absl::StatusCode::kFailedPrecondition ||
         status.code() == absl::StatusCode::kUnknown;
}

// Returns the exit code for an error before the first step. A peer that is lost or does not respond
// gives kPeerLost, because this rank is not the cause. Internal, Unknown and Aborted give kFailure.
// Any other code comes from the input or a disk and gives kBadInput, because a retry cannot help,
// unless the error is marked by storage_away().
inline ExitCode exit_code_for(const absl::Status& status) {
  if (is_storage_away(status)) return ExitCode::kStorageAway;
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
