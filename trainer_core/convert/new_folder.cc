#include "trainer_core/convert/new_folder.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include <absl/memory/memory.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include "common/files/errno_status.h"
#include "common/files/file_lock.h"
#include "common/files/file_write.h"
#include "common/files/free_space.h"
#include "common/text/absl_view.h"
#include "trainer_core/base/units.h"
#include "trainer_core/checkpoint/owner.h"
#include "trainer_core/checkpoint/publish.h"

namespace muster::trainer {
namespace {

namespace fs = std::filesystem;

absl::Status exists(const std::string& path) {
  return absl::AlreadyExistsError(
      absl::StrCat(path, " is there already; nothing is overwritten: name another folder"));
}

absl::Status check_room(const std::string& folder, const std::string& path, uint64_t bytes) {
  const std::optional<uint64_t> available = free_space_bytes(folder);
  if (!available || *available >= bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrFormat("%s: the disk has no room: it takes %.0f MiB, and %.0f MiB are free", path,
                      static_cast<double>(bytes) / kMiB, static_cast<double>(*available) / kMiB));
}

// Temporary folders for `name` are ".tmp-<name>-XXXXXX" (mkdtemp).
constexpr std::string_view kPattern = "XXXXXX";
std::string prefix_of(const std::string& name) { return absl::StrCat(kTemporaryPrefix, name, "-"); }

// Removes temporary folders of processes that ended before they published `place`. Running
// processes hold locks on their folders.
void remove_leftovers(const fs::path& place) {
  const auto names = list_directory(place.parent_path().string());
  if (!names.ok()) return;
  const std::string prefix = prefix_of(place.filename().string());
  for (const std::string& name : *names) {
    if (!name.starts_with(prefix) || name.size() != prefix.size() + kPattern.size()) continue;
    const fs::path leftover = place.parent_path() / name;
    const auto lock = try_lock(leftover.string());
    if (!lock.ok() || !lock->has_value()) continue;
    std::error_code ignored;
    fs::remove_all(leftover, ignored);
    close(**lock);
  }
}

struct Temporary {
  std::string path;
  int lock = -1;  // -1: the file system has no locks
};

absl::StatusOr<Temporary> make_temporary(const fs::path& place) {
  const fs::path parent = place.parent_path();
  // Another process may remove the folder before it is locked; this will hardly happen several
  // times in a row.
  for (int attempt = 0; attempt < 10; ++attempt) {
    std::string path =
        (parent / absl::StrCat(prefix_of(place.filename().string()), av(kPattern))).string();
    if (mkdtemp(path.data()) == nullptr)
      return errno_status(errno, absl::StrCat("cannot make a folder in ", parent.string()));
    const auto lock = try_lock(path);
    if (lock.ok() && !lock->has_value()) continue;
    std::error_code error;
    if (!fs::exists(path, error)) {
      if (lock.ok()) close(**lock);
      continue;
    }
    return Temporary{std::move(path), lock.ok() ? lock->value_or(-1) : -1};
  }
  return absl::AbortedError(
      absl::StrCat("cannot create a folder in ", parent.string(), ": other processes remove it"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<NewFolder>> NewFolder::create(const std::string& path,
                                                             uint64_t bytes) {
  std::error_code error;
  fs::path place = fs::absolute(path, error).lexically_normal();
  if (!place.has_filename()) place = place.parent_path();
  if (!place.has_filename())
    return absl::InvalidArgumentError(absl::StrCat("\"", path, "\" names no folder to make"));
  if (fs::exists(fs::symlink_status(place, error)) && !fs::is_empty(place, error))
    return exists(path);
  const fs::path parent = place.parent_path();
  if (!fs::is_directory(parent, error)) {
    return absl::NotFoundError(
        absl::StrCat(path, ": there is no folder ", parent.string(), " to make it in"));
  }
  remove_leftovers(place);
  if (auto status = check_room(parent, path, bytes); !status.ok()) return status;
  auto temporary = make_temporary(place);
  if (!temporary.ok()) return temporary.status();
  auto folder =
      absl::WrapUnique(new NewFolder(place.string(), std::move(temporary->path), temporary->lock));
  // Applies the user's umask; mkdtemp() creates private folders.
  const mode_t mask = umask(0);
  umask(mask);
  chmod(folder->temporary_.c_str(), 0777 & ~mask);
  return folder;
}

NewFolder::~NewFolder() {
  std::error_code ignored;
  if (!temporary_.empty()) fs::remove_all(temporary_, ignored);
  if (lock_ >= 0) close(lock_);
}

absl::Status NewFolder::publish() {
  if (auto status = sync_path(temporary_); !status.ok()) return status;
  // The rename replaces an empty folder, but nothing else.
  if (rename(temporary_.c_str(), path_.c_str()) != 0) {
    const int error = errno;
    if (error == EEXIST || error == ENOTEMPTY || error == ENOTDIR) return exists(path_);
    return errno_status(error, absl::StrCat("cannot rename ", temporary_, " to ", path_));
  }
  temporary_.clear();
  return sync_path(fs::path(path_).parent_path());
}

}  // namespace muster::trainer
