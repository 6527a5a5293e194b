#include "worker/shell/files/protected_path.h"

#include <sys/stat.h>

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <vector>

#include <absl/strings/str_cat.h>

#include "common/files/errno_status.h"
#include "common/text/escape.h"

namespace muster::worker {
namespace {

namespace fs = std::filesystem;

constexpr int kLinksMax = 40;  // the kernel's limit
constexpr size_t kShownPathBytesMax = 512;

std::string shown_path(const fs::path& path) {
  return printable(path.string(), kShownPathBytesMax);
}

// Every group may have members, also root's. Where a file has an access control list, its mode has
// the list's mask as the group's bits, so that every entry with the right to write counts, too.
bool is_writable_for_others(const struct stat& info) {
  return (info.st_mode & (S_IWGRP | S_IWOTH)) != 0;
}

absl::Status check_owner(const fs::path& path, const struct stat& info) {
  if (info.st_uid == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(shown_path(path), " belongs to the user ",
                                                    info.st_uid,
                                                    ", who could replace it: chown root"));
}

// `is_on_the_way`: more names follow.
absl::Status check_entry(const fs::path& path, const struct stat& info, bool is_on_the_way) {
  if (auto status = check_owner(path, info); !status.ok()) return status;
  if (!is_writable_for_others(info) || (is_on_the_way && (info.st_mode & S_ISVTX) != 0))
    return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("other users may write to ", shown_path(path), ": chmod go-w"));
}

// The rest of a path, with the next name at the end.
void add_names(const fs::path& path, std::vector<fs::path>& rest) {
  const std::vector<fs::path> names(path.begin(), path.end());
  rest.insert(rest.end(), names.rbegin(), names.rend());
}

}  // namespace

absl::Status check_protected(const std::string& path) {
  std::error_code error;
  const fs::path absolute = fs::absolute(path, error);
  if (error) return errno_status(error.value(), shown_path(path));
  std::vector<fs::path> rest;
  add_names(absolute, rest);
  fs::path at;  // without links
  for (int links = 0; !rest.empty();) {
    const fs::path name = rest.back();
    rest.pop_back();
    if (name.empty() || name == ".") continue;
    if (name == "..") {
      at = at.parent_path();
      continue;
    }
    const fs::path next = at / name;
    struct stat info {};
    if (lstat(next.c_str(), &info) != 0) return errno_status(errno, shown_path(next));
    if (!S_ISLNK(info.st_mode)) {
      if (auto status = check_entry(next, info, !rest.empty()); !status.ok()) return status;
      at = next;
      continue;
    }
    // In a folder with the sticky bit only the owner of a link can replace it.
    if (auto status = check_owner(next, info); !status.ok()) return status;
    const fs::path target = fs::read_symlink(next, error);
    if (error) return errno_status(error.value(), shown_path(next));
    if (++links > kLinksMax) return errno_status(ELOOP, shown_path(path));
    add_names(target, rest);
    if (target.is_absolute()) at.clear();
  }
  return absl::OkStatus();
}

}  // namespace muster::worker
