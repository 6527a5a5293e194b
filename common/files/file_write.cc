#include "common/files/file_write.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>

#include <absl/cleanup/cleanup.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>

#include "common/files/errno_status.h"

namespace muster {
namespace {

// The maximum number of names tried. A name may be used by another thread that writes the same
// file, or by the leftover of a crashed process with the same pid.
constexpr int kNamesTriedMax = 100;

// Creates a file beside `path` under an unused name, which goes to `temporary`. Returns the
// descriptor.
absl::StatusOr<int> create_temporary(const std::string& path, mode_t mode, std::string* temporary) {
  for (int i = 0; i < kNamesTriedMax; ++i) {
    // The pid shows an operator which process left the file behind in a crash.
    *temporary = absl::StrCat(path, ".tmp-", getpid(), "-", i);
    const int fd = open(temporary->c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (fd >= 0) return fd;
    if (errno != EEXIST) break;
  }
  return file_status(errno, "creating a file beside it");
}

// Writes all of `bytes`. Returns 0 or an errno.
int try_write(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return 0;
}

absl::Status write_and_close(int fd, std::string_view content, const FileWriteOptions& options) {
  absl::Status status = write_all(fd, content);
  if (status.ok() && options.mode && fchmod(fd, *options.mode) != 0)
    status = file_status(errno, "fchmod");
  if (status.ok() && options.durability == Durability::kPowerLoss && fsync(fd) != 0)
    status = file_status(errno, "fsync");
  // A network file system may report a full disk only at close().
  if (close(fd) != 0 && status.ok()) status = file_status(errno, "close");
  return status;
}

absl::Status write_and_rename(const std::string& path, std::string_view content,
                              const FileWriteOptions& options) {
  std::string temporary;
  const auto fd = create_temporary(path, options.mode.value_or(0666), &temporary);
  if (!fd.ok()) return fd.status();
  absl::Cleanup remove_temporary = [&] { unlink(temporary.c_str()); };
  if (auto status = write_and_close(*fd, content, options); !status.ok()) return status;
  if (rename(temporary.c_str(), path.c_str()) != 0) return file_status(errno, "rename");
  std::move(remove_temporary).Cancel();
  return absl::OkStatus();
}

}  // namespace

absl::Status write_file_atomically(const std::string& path, std::string_view content,
                                   const FileWriteOptions& options) {
  if (auto status = write_and_rename(path, content, options); !status.ok()) {
    return absl::Status(status.code(), absl::StrCat("cannot write ", path, ": ", status.message()));
  }
  if (options.durability != Durability::kPowerLoss) return absl::OkStatus();
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return sync_path(folder.empty() ? "." : folder);
}

absl::Status write_all(int fd, std::string_view bytes) {
  const int error = try_write(fd, bytes);
  return error == 0 ? absl::OkStatus() : file_status(error, "write");
}

absl::Status write_result(std::string_view text) {
  const int error = try_write(STDOUT_FILENO, text);
  if (error == 0 || error == EPIPE) return absl::OkStatus();
  return file_status(error, "cannot write to standard output");
}

absl::Status sync_path(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return file_status(errno, absl::StrCat("cannot open ", path));
  absl::Cleanup close_file = [fd] { close(fd); };
  if (fsync(fd) != 0) return file_status(errno, absl::StrCat("cannot sync ", path));
  return absl::OkStatus();
}

}  // namespace muster
