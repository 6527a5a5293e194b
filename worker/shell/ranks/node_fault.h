// Marks errors at the start of a rank that the node has caused, and not the job: the worker's own
// folder is read-only, full or missing, or the system cannot start a process. The coordinator then
// excludes the node and starts the job elsewhere.
#pragma once

#include <utility>

#include <absl/status/status.h>

namespace muster::worker {

constexpr char kNodeFaultMark[] = "muster.node_fault";

// Marks an error as the node's. Leaves OK unchanged.
inline absl::Status node_fault(absl::Status status) {
  status.SetPayload(kNodeFaultMark, absl::Cord());
  return status;
}

// Marks an error in a folder of the rank's user as the node's, unless the user could have caused
// it by links or modes: users must not be able to exclude nodes.
inline absl::Status node_fault_unless_users(absl::Status status) {
  switch (status.code()) {
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kNotFound:
      return status;
    default:
      return node_fault(std::move(status));
  }
}

inline bool is_node_fault(const absl::Status& status) {
  return status.GetPayload(kNodeFaultMark).has_value();
}

}  // namespace muster::worker
