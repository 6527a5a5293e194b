#include "common/files/errno_status.h"

#include <sys/resource.h>

#include <cerrno>
#include <string>
#include <system_error>

#include <absl/strings/str_cat.h>

#include "common/text/absl_view.h"

namespace muster {
namespace {

absl::StatusCode code_of(int error) {
  switch (error) {
    case EINVAL:
    case ENAMETOOLONG:
    case E2BIG:
    case EFAULT:
    case ESPIPE:
    case ENOTSOCK:
      return absl::StatusCode::kInvalidArgument;
    case ETIMEDOUT:
      return absl::StatusCode::kDeadlineExceeded;
    case ENOENT:
    case ENODEV:
    case ENXIO:
    case ESRCH:
      return absl::StatusCode::kNotFound;
    case EEXIST:
    case EADDRNOTAVAIL:
      return absl::StatusCode::kAlreadyExists;
    case EPERM:
    case EACCES:
    case EROFS:
      return absl::StatusCode::kPermissionDenied;
    case ENOTEMPTY:
    case EISDIR:
    case ENOTDIR:
    case EADDRINUSE:
    case EBADF:
    case EBUSY:
    case ECHILD:
    case EPIPE:
    case ETXTBSY:
      return absl::StatusCode::kFailedPrecondition;
    case ENOSPC:
    case EDQUOT:
    case EMFILE:
    case EMLINK:
    case ENFILE:
    case ENOBUFS:
    case ENOMEM:
      return absl::StatusCode::kResourceExhausted;
    case EFBIG:
    case EOVERFLOW:
      return absl::StatusCode::kOutOfRange;
    case ENOSYS:
    case EOPNOTSUPP:
    case EXDEV:
      return absl::StatusCode::kUnimplemented;
    case EAGAIN:
    case EINTR:
    case ECONNREFUSED:
    case ECONNABORTED:
    case ECONNRESET:
    case EHOSTUNREACH:
    case ENETUNREACH:
      return absl::StatusCode::kUnavailable;
    case EDEADLK:
    case ESTALE:
      return absl::StatusCode::kAborted;
    default:
      return absl::StatusCode::kUnknown;
  }
}

// Returns " (ulimit -f allows 10 KiB)" for EFBIG if this process has such a limit; otherwise "".
std::string limit_of_files(int error) {
  rlimit limit{};
  if (error != EFBIG || getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
    return "";
  return absl::StrCat(" (ulimit -f allows ", limit.rlim_cur >> 10, " KiB)");
}

}  // namespace

absl::Status errno_status(int error, std::string_view what) {
  if (error == 0) return absl::OkStatus();
  return {code_of(error), absl::StrCat(av(what), ": ", std::generic_category().message(error),
                                       limit_of_files(error))};
}

absl::Status file_status(int error, std::string_view what) {
  const absl::Status status = errno_status(error, what);
  const bool is_of_peers =
      absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) || absl::IsAborted(status);
  return is_of_peers ? absl::UnknownError(status.message()) : status;
}

}  // namespace muster
