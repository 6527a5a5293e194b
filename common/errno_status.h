// A failed system call as a status. Abseil has the same as ErrnoToStatus, but not yet in Ubuntu 22.04's version.
#pragma once

#include <string_view>

#include <absl/status/status.h>

namespace muster {

// `what` says what was tried, on what; the system's own words for `error` (an errno) follow. The code is the one that
// Abseil would give: NotFound for ENOENT, PermissionDenied for EACCES, ResourceExhausted for ENOSPC and so on; Unknown
// for errors that files, sockets and processes do not give.
absl::Status errno_status(int error, std::string_view what);

// The same of a file, but never Unavailable, DeadlineExceeded or Aborted: those say something of peers, or of another owner, and a
// network file system has errors of these kinds (ETIMEDOUT, ESTALE, EHOSTUNREACH), too. They are Unknown here.
absl::Status file_status(int error, std::string_view what);

}  // namespace muster
