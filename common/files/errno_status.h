// Converts a failed system call to a status. Abseil's ErrnoToStatus does the same, but Ubuntu
// 22.04's version of Abseil does not have it.
#pragma once

#include <string_view>

#include <absl/status/status.h>

namespace muster {

// Returns a status for `error` (an errno). The message is `what` (the operation and its object)
// followed by the system's text. The code is the same as Abseil's: NotFound for ENOENT,
// PermissionDenied for EACCES, ResourceExhausted for ENOSPC, and so on. It is Unknown for errors
// that files, sockets and processes do not produce.
absl::Status errno_status(int error, std::string_view what);

// Returns the status of a failed file operation. Unlike errno_status(), never returns Unavailable,
// DeadlineExceeded or Aborted: callers interpret these codes as a lost peer or another owner.
// Network file systems also fail with errors that map to these codes (ETIMEDOUT, ESTALE,
// EHOSTUNREACH); the result is then Unknown.
absl::Status file_status(int error, std::string_view what);

}  // namespace muster
