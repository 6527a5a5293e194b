#include "trainer_core/checkpoint/owner.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <exception>
#include <optional>
#include <string_view>

#include <absl/cleanup/cleanup.h>
#include <absl/memory/memory.h>
#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

#include "common/files/errno_status.h"
#include "common/files/file_write.h"
#include "common/time/time.h"
#include "trainer_core/base/json_file.h"
#include "trainer_core/checkpoint/publish.h"

namespace muster::trainer {
namespace {

using nlohmann::json;

// The maximum size of OWNER: far more than three numbers and their names.
constexpr size_t kOwnerBytesMax = 4096;
// The permissions of OWNER: any user may read it.
constexpr mode_t kOwnerMode = 0644;
// The maximum number of tries. A try fails only if another process opens the directory within the
// same microseconds.
constexpr int kTriesMax = 10;

struct PresentOwner {
  CheckpointOwner owner;
  bool readable = false;  // false: the file has other contents
  bool alive = false;     // its process is running and holds the lock
  dev_t device = 0;
  ino_t inode = 0;
};

// Reads OWNER; nullopt if the directory has no owner.
absl::StatusOr<std::optional<PresentOwner>> read_owner(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0 && errno == ENOENT) return std::nullopt;
  if (fd < 0) return file_status(errno, absl::StrCat("cannot open ", path));
  absl::Cleanup close_file = [fd] { close(fd); };
  struct stat info {};
  std::array<char, kOwnerBytesMax> text{};
  const ssize_t bytes = pread(fd, text.data(), text.size(), 0);
  if (bytes < 0 || fstat(fd, &info) != 0)
    return file_status(errno, absl::StrCat("cannot read ", path));
  PresentOwner present;
  present.device = info.st_dev;
  present.inode = info.st_ino;
  if (const auto owner = parse_owner({text.data(), static_cast<size_t>(bytes)})) {
    present.owner = *owner;
    present.readable = true;
  }
  // On a file system without locks, no owner counts as running. The fence itself does not need
  // locks.
  present.alive = flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  return std::optional(present);
}

std::string name_of(const CheckpointOwner& owner) {
  if (owner.job == 0) return "a trainer that was started by hand";
  return absl::StrCat("attempt ", owner.attempt, " of job ", owner.job);
}

absl::Status fenced(const std::string& directory, const PresentOwner& present,
                    const CheckpointOwner& mine) {
  return not_the_owner(directory, present.readable ? std::optional(present.owner) : std::nullopt,
                       mine);
}

absl::Status write_text(int fd, const std::string& text) {
  if (auto status = write_all(fd, text); !status.ok()) return status;
  if (fsync(fd) != 0) return file_status(errno, "fsync");
  return absl::OkStatus();
}

}  // namespace

std::string text_of(const CheckpointOwner& owner) {
  const json text = {
      {"job", owner.job}, {"attempt", owner.attempt}, {"incarnation", owner.incarnation}};
  return text.dump() + "\n";
}

std::optional<CheckpointOwner> parse_owner(std::string_view text) {
  const json j = json::parse(text, nullptr, /*allow_exceptions=*/false);
  try {
    return CheckpointOwner{whole_number<uint64_t>(j.at("job")),
                           whole_number<uint32_t>(j.at("attempt")),
                           whole_number<uint64_t>(j.at("incarnation"))};
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

absl::Status not_the_owner(const std::string& directory,
                           const std::optional<CheckpointOwner>& present,
                           const CheckpointOwner& mine) {
  return absl::AbortedError(
      absl::StrCat("checkpoint directory ", directory, " belongs to ",
                   present ? name_of(*present) : std::string("another process"), " now; ",
                   name_of(mine), " does not save any more"));
}

absl::StatusOr<std::string> owner_text(const std::string& directory) {
  const auto present = read_owner(absl::StrCat(directory, "/", kOwnerFile));
  if (!present.ok()) return present.status();
  return present->has_value() && (*present)->readable ? text_of((*present)->owner) : "";
}

bool owner_is_alive(const std::string& path) {
  const auto present = read_owner(path);
  return present.ok() && present->has_value() && (*present)->alive;
}

absl::StatusOr<std::unique_ptr<DirectoryFence>> DirectoryFence::take(const std::string& directory,
                                                                     const CheckpointOwner& owner) {
  auto present = read_owner(absl::StrCat(directory, "/", kOwnerFile));
  if (!present.ok()) return present.status();
  if (present->has_value()) {
    const PresentOwner& other = **present;
    if (other.readable && other.alive && other.owner.job == owner.job &&
        other.owner.attempt > owner.attempt)
      return fenced(directory, other, owner);
  }
  CheckpointOwner named = owner;
  if (named.incarnation == 0) named.incarnation = static_cast<uint64_t>(wall_clock_unix_ns());
  auto fence = absl::WrapUnique(new DirectoryFence(directory, named));
  if (auto status = fence->write(); !status.ok()) return status;
  return fence;
}

DirectoryFence::~DirectoryFence() {
  if (fd_ >= 0) close(fd_);
}

absl::Status DirectoryFence::write() {
  const std::string path = absl::StrCat(directory_, "/", kOwnerFile);
  absl::StatusOr<int> fd = write_temporary(path);
  // A process that starts at the same moment may remove the temporary file before it is locked,
  // because it seems to belong to a process that has ended.
  for (int tries = 1; absl::IsNotFound(fd.status()) && tries < kTriesMax; ++tries)
    fd = write_temporary(path);
  absl::Status status = fd.status();
  if (status.ok()) status = sync_path(directory_);
  if (!status.ok()) {
    if (fd.ok()) close(*fd);
    return absl::Status(status.code(), absl::StrCat("cannot write ", path, ": ", status.message()));
  }
  if (fd_ >= 0) close(fd_);
  fd_ = *fd;
  return absl::OkStatus();
}

// Writes a new OWNER file, which is open and locked. Its temporary name must be unique, because
// other containers can have the same process ids.
absl::StatusOr<int> DirectoryFence::write_temporary(const std::string& path) const {
  std::string temporary = absl::StrCat(directory_, "/", kTemporaryOwnerPrefix, owner_.job, "-",
                                       owner_.attempt, "-XXXXXX");
  const int fd = mkostemp(temporary.data(), O_CLOEXEC);
  if (fd < 0) return file_status(errno, absl::StrCat("cannot create ", temporary));
  (void)flock(fd, LOCK_EX | LOCK_NB);
  absl::Status status =
      fchmod(fd, kOwnerMode) == 0 ? write_text(fd, text_of(owner_)) : file_status(errno, "fchmod");
  if (status.ok() && rename(temporary.c_str(), path.c_str()) == 0) return fd;
  if (status.ok()) status = file_status(errno, "rename");
  unlink(temporary.c_str());
  close(fd);
  return status;
}

absl::Status DirectoryFence::check() {
  auto present = read_owner(absl::StrCat(directory_, "/", kOwnerFile));
  if (!present.ok()) return present.status();
  if (!present->has_value()) return write();
  const PresentOwner& other = **present;
  struct stat mine {};
  if (fstat(fd_, &mine) != 0)
    return file_status(errno, absl::StrCat("cannot examine OWNER of ", directory_));
  if (mine.st_dev == other.device && mine.st_ino == other.inode) return absl::OkStatus();
  // Two attempts have opened the directory at the same moment, and the older attempt was the last
  // to rename its file.
  if (other.readable && other.owner.job == owner_.job && other.owner.attempt < owner_.attempt)
    return write();
  return fenced(directory_, other, owner_);
}

}  // namespace muster::trainer
