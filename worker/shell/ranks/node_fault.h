// Marks errors at the start of a rank that the node has caused, and not the job: the worker's own
// folder is read-only, full or missing, or the system cannot start a process. The coordinator then
// excludes the node and starts the job elsewhere.
#pragma once

#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

#include <absl/status/status.h>
#include <absl/strings/match.h>
#include <absl/strings/str_replace.h>

namespace muster::worker {

constexpr char kNodeFaultMark[] = "muster.node_fault";

// Marks an error as the node's. Leaves OK unchanged.
inline absl::Status node_fault(absl::Status status) {
  status.SetPayload(kNodeFaultMark, absl::Cord());
  return status;
}

// Marks an error in a folder of the rank's user as the node's, unless the user has used up a quota.
// Its message then has other words than the system's, by which the coordinator would recognize a
// full disk of the node.
inline absl::Status node_fault_unless_quota(absl::Status status) {
  const std::string words = std::generic_category().message(EDQUOT);
  if (!absl::StrContains(status.message(), words)) return node_fault(std::move(status));
  return absl::Status(
      status.code(),
      absl::StrReplaceAll(status.message(), {{words, "the job's owner has used up a quota"}}));
}

// Does the same, and also leaves errors unmarked that the user could have caused by links, modes or
// leases: users must not be able to exclude nodes.
inline absl::Status node_fault_unless_users(absl::Status status) {
  switch (status.code()) {
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kUnavailable:  // EAGAIN: the user has a lease on the file
      return status;
    default:
      return node_fault_unless_quota(std::move(status));
  }
}

inline bool is_node_fault(const absl::Status& status) {
  return status.GetPayload(kNodeFaultMark).has_value();
}

}  // namespace muster::worker
