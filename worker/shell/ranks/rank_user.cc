#include "worker/shell/ranks/rank_user.h"

#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include <absl/strings/str_cat.h>
#include <absl/strings/string_view.h>
#include <spdlog/spdlog.h>

#include "common/files/errno_status.h"
#include "common/files/find_program.h"
#include "common/job/limits.h"
#include "common/text/escape.h"
#include "daemon/process.h"
#include "worker/shell/files/protected_path.h"
#include "worker/shell/ranks/node_fault.h"

namespace muster::worker {
namespace {

// The memory for one entry of the user database: names, a home and a shell.
constexpr size_t kEntryBytes = size_t{64} << 10;
constexpr int kUserGroupsMax = 65'536;  // the kernel's limit
// Former folders of one launch that belong to others.
constexpr int kFormerFoldersMax = 1000;

absl::Status users_error(const FlaggedFile& file, absl::string_view why) {
  return absl::FailedPreconditionError(
      absl::StrCat(file.flag, "=", file.path, " (with --run-as-owner): ", why));
}

absl::Status check_file(const FlaggedFile& file) {
  if (file.path.empty()) return absl::OkStatus();
  if (auto status = check_protected(file.path); !status.ok())
    return users_error(file, status.message());
  struct stat info {};
  if (stat(file.path.c_str(), &info) != 0)
    return users_error(file, errno_status(errno, "reading its mode").message());
  if (file.is_secret && (info.st_mode & (S_IRWXG | S_IRWXO)) != 0)
    return users_error(file, "ranks of other users could read it: chmod 600");
  return absl::OkStatus();
}

// Renames what is at `path` to an unused name.
absl::Status put_aside(const std::string& path, uid_t owner) {
  for (int i = 1; i <= kFormerFoldersMax; ++i) {
    const std::string name = absl::StrCat(path, ".of-", owner, "-", i);
    if (renameat2(AT_FDCWD, path.c_str(), AT_FDCWD, name.c_str(), RENAME_NOREPLACE) == 0) {
      spdlog::warn("{} belongs to the user {} and is renamed to {}", path, owner, name);
      return absl::OkStatus();
    }
    if (errno != EEXIST) break;
  }
  return errno_status(errno,
                      absl::StrCat("renaming ", path, ", which belongs to the user ", owner));
}

}  // namespace

absl::StatusOr<RankUser> find_rank_user(const std::string& owner, bool permits_root) {
  if (owner.empty())
    return absl::PermissionDeniedError(
        "this node runs jobs as their owners (--run-as-owner), and the job has none: submit it "
        "with a token that names its user");
  const std::string shown = printable(owner, kNameBytesMax);
  passwd entry{};
  passwd* found = nullptr;
  std::vector<char> bytes(kEntryBytes);
  // The database would see only the beginning of a name with a NUL.
  const bool is_name = owner.find('\0') == std::string::npos;
  const int error =
      is_name ? getpwnam_r(owner.c_str(), &entry, bytes.data(), bytes.size(), &found) : 0;
  if (found == nullptr && error != 0)
    return node_fault(errno_status(error, absl::StrCat("the lookup of the user ", shown)));
  // Not a fault of the node: its owner would exclude nodes one after the other.
  if (found == nullptr)
    return absl::PermissionDeniedError(
        absl::StrCat("the job's owner ", shown, " is no user of this node"));
  if (entry.pw_uid == 0 && !permits_root)
    return absl::PermissionDeniedError(
        absl::StrCat("the job's owner ", shown,
                     " is root, whose jobs this node does not run without --run-root-jobs"));
  RankUser user{.name = owner,
                .ids = {.uid = entry.pw_uid, .gid = entry.pw_gid},
                .home = entry.pw_dir,
                .shell = entry.pw_shell};
  int count = 64;
  user.ids.groups.resize(static_cast<size_t>(count));
  while (getgrouplist(owner.c_str(), user.ids.gid, user.ids.groups.data(), &count) < 0) {
    // Not every source reports the number that it needs.
    count = std::max(count, static_cast<int>(user.ids.groups.size()) + 1);
    if (count > kUserGroupsMax)
      return node_fault(absl::InternalError(
          absl::StrCat("the user ", shown, " has ", count, " groups, more than Linux supports")));
    user.ids.groups.resize(static_cast<size_t>(count));
  }
  user.ids.groups.resize(static_cast<size_t>(count));
  return user;
}

std::vector<FlaggedFile> files_of_worker(const daemon::ClientTrust& trust,
                                         const std::string& trainer,
                                         const std::string& check_program) {
  return {{"--token-file", trust.token_file, true},
          {"--tls-key", trust.tls_key, true},
          {"--tls-cert", trust.tls_cert},
          {"--tls-ca", trust.tls_ca},
          {"--trainer", trainer},
          {"the program of node checks", check_program},
          {"muster-worker", daemon::own_executable_path().value_or("")},
          {"py-spy in PATH", find_program_in_path("py-spy").value_or("")}};
}

absl::Status admit_users(const std::string& work_dir, const std::vector<FlaggedFile>& files) {
  if (geteuid() != 0)
    return absl::FailedPreconditionError(
        "--run-as-owner: only root can run ranks as other users, and this program does not run as "
        "root");
  {
    const FileRights rights(UserIds{.uid = kNobody, .gid = kNobody, .groups = {kNobody}});
    if (!rights.status().ok())
      return absl::Status(rights.status().code(),
                          absl::StrCat("--run-as-owner: ", rights.status().message()));
  }
  for (const FlaggedFile& file : files)
    if (auto status = check_file(file); !status.ok()) return status;
  const FlaggedFile folder{.flag = "--work-dir", .path = work_dir};
  if (auto status = check_file(folder); !status.ok()) return status;
  struct stat info {};
  if (stat(work_dir.c_str(), &info) != 0 ||
      chmod(work_dir.c_str(), (info.st_mode & 07777) | S_IXUSR | S_IXGRP | S_IXOTH) != 0)
    return errno_status(errno, absl::StrCat("--work-dir=", work_dir));
  for (std::filesystem::path parent = work_dir; parent != parent.root_path();
       parent = parent.parent_path())
    if (stat(parent.c_str(), &info) == 0 && (info.st_mode & S_IXOTH) == 0)
      return users_error(folder, absl::StrCat("users cannot pass the folder ", parent.string(),
                                              " to their ranks' folders: chmod o+x"));
  return absl::OkStatus();
}

std::map<std::string, std::string> login_variables(const RankUser& user) {
  return {{"HOME", user.home}, {"USER", user.name}, {"LOGNAME", user.name}, {"SHELL", user.shell}};
}

absl::Status make_folder_of(const UserIds& ids, const std::string& path, mode_t mode) {
  struct stat info {};
  if (lstat(path.c_str(), &info) == 0) {
    const bool is_theirs = S_ISDIR(info.st_mode) && info.st_uid == ids.uid;
    if (is_theirs && (ids.uid != geteuid() || chmod(path.c_str(), mode) == 0))
      return absl::OkStatus();
    if (is_theirs) return errno_status(errno, absl::StrCat("setting the mode of ", path));
    if (auto status = put_aside(path, info.st_uid); !status.ok()) return status;
  }
  // No other user can reach it before it belongs to this one.
  if (mkdir(path.c_str(), S_IRWXU) != 0)
    return errno_status(errno, absl::StrCat("creating folder ", path));
  if (chmod(path.c_str(), mode) != 0 || lchown(path.c_str(), ids.uid, ids.gid) != 0) {
    const int error = errno;
    rmdir(path.c_str());
    return errno_status(error, absl::StrCat("giving folder ", path, " to the user ", ids.uid));
  }
  return absl::OkStatus();
}

}  // namespace muster::worker
