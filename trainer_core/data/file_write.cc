#include "trainer_core/data/file_write.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include <absl/cleanup/cleanup.h>
#include <absl/strings/str_cat.h>

namespace muster::trainer {
namespace {

absl::Status write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return absl::ErrnoToStatus(errno, "write");
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

absl::Status write_new_file(const std::string& path, std::string_view bytes) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return absl::ErrnoToStatus(errno, "open");
  absl::Cleanup close_file = [fd] { close(fd); };
  if (auto status = write_all(fd, bytes); !status.ok()) return status;
  if (fsync(fd) != 0) return absl::ErrnoToStatus(errno, "fsync");
  return absl::OkStatus();
}

}  // namespace

absl::Status write_file_atomically(const std::string& path, std::string_view bytes) {
  const std::string temporary = absl::StrCat(path, ".tmp");
  absl::Status status = write_new_file(temporary, bytes);
  if (status.ok() && rename(temporary.c_str(), path.c_str()) != 0) {
    status = absl::ErrnoToStatus(errno, "rename");
  }
  if (!status.ok()) {
    unlink(temporary.c_str());
    return absl::Status(status.code(), absl::StrCat("cannot write ", path, ": ", status.message()));
  }
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return sync_folder(folder.empty() ? "." : folder);
}

absl::Status sync_folder(const std::string& folder) {
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("opening folder ", folder));
  absl::Cleanup close_folder = [fd] { close(fd); };
  if (fsync(fd) != 0) return absl::ErrnoToStatus(errno, absl::StrCat("fsync of folder ", folder));
  return absl::OkStatus();
}

}  // namespace muster::trainer
