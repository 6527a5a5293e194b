#include "trainer_core/checkpoint/publish.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <vector>

#include <absl/strings/str_cat.h>

#include "common/files/errno_status.h"
#include "common/files/file_write.h"
#include "trainer_core/checkpoint/names.h"

namespace muster::trainer {
namespace {

namespace fs = std::filesystem;

absl::Status cannot_rename(int error, const std::string& from, const std::string& to) {
  return file_status(error, absl::StrCat("cannot rename ", from, " to ", to));
}

// Exchanges two names. Returns 0 or an errno.
int exchange(const std::string& a, const std::string& b) {
  constexpr unsigned kExchangeFlag = 2;  // RENAME_EXCHANGE, which older headers lack
  const int64_t failed =
      syscall(SYS_renameat2, AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), kExchangeFlag);
  return failed == 0 ? 0 : errno;
}

bool cannot_exchange(int error) {
  return error == EINVAL || error == ENOSYS || error == ENOTSUP || error == EPERM;
}

absl::Status replace_by_aside(const std::string& temporary, const std::string& target,
                              const std::string& aside) {
  std::error_code ignored;
  fs::remove_all(aside, ignored);
  if (rename(target.c_str(), aside.c_str()) != 0) return cannot_rename(errno, target, aside);
  if (rename(temporary.c_str(), target.c_str()) != 0) {
    const int error = errno;
    fs::rename(aside, target, ignored);
    return cannot_rename(error, temporary, target);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status publish_folder(const std::string& temporary, const std::string& directory,
                            const std::string& name, Replace how) {
  const std::string target = absl::StrCat(directory, "/", name);
  const std::string aside = absl::StrCat(directory, "/", kAsidePrefix, name);
  if (is_other_file(target)) {
    return absl::AlreadyExistsError(
        absl::StrCat(target, " is a file, and the checkpoint's folder needs its name; move it"));
  }
  std::string old;  // removed once the new folder is durable
  int error = how == Replace::kExchange ? exchange(temporary, target) : EINVAL;
  if (error == 0) old = temporary;
  std::error_code unknown;
  const bool is_new = error != 0 && (error == ENOENT || !fs::exists(target, unknown));
  if (unknown) return file_status(unknown.value(), absl::StrCat("cannot examine ", target));
  if (is_new) {
    error = rename(temporary.c_str(), target.c_str()) == 0 ? 0 : errno;
  } else if (cannot_exchange(error)) {
    if (auto status = replace_by_aside(temporary, target, aside); !status.ok()) return status;
    error = 0;
    old = aside;
  }
  if (error != 0) return cannot_rename(error, temporary, target);
  if (auto status = sync_path(directory); !status.ok()) return status;
  std::error_code ignored;
  if (!old.empty()) fs::remove_all(old, ignored);
  return absl::OkStatus();
}

bool is_other_file(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  return fs::status_known(status) && fs::exists(status) && !fs::is_directory(status);
}

absl::StatusOr<std::vector<std::string>> list_directory(const std::string& directory) {
  std::vector<std::string> names;
  std::error_code error;
  // A range-based for would throw if the disk fails during the iteration.
  fs::directory_iterator entry(directory, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error))
    names.push_back(entry->path().filename().string());
  if (error)
    return file_status(error.value(), absl::StrCat("cannot read checkpoint directory ", directory));
  std::sort(names.begin(), names.end());
  return names;
}

void restore_asides(const std::string& directory) {
  const auto names = list_directory(directory);
  if (!names.ok()) return;
  for (const std::string& name : *names) {
    if (!is_aside(name)) continue;
    const fs::path aside = fs::path(directory) / name;
    const fs::path target =
        fs::path(directory) / name.substr(std::string_view(kAsidePrefix).size());
    std::error_code error;
    if (fs::exists(target, error)) {
      fs::remove_all(aside, error);
    } else if (!error) {
      fs::rename(aside, target, error);
    }
  }
}

absl::Status make_synced_folders(const std::string& directory) {
  std::error_code error;
  const fs::path path = fs::absolute(directory, error);
  std::vector<fs::path> created;  // the deepest first
  for (fs::path at = path; !fs::exists(at, error) && at.has_relative_path(); at = at.parent_path())
    created.push_back(at);
  fs::create_directories(path, error);
  if (error) return file_status(error.value(), absl::StrCat("cannot make folder ", directory));
  for (const fs::path& folder : created) {
    if (auto status = sync_path(folder.parent_path()); !status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace muster::trainer
