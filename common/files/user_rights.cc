#include "common/files/user_rights.h"

#include <linux/capability.h>
#include <linux/keyctl.h>
#include <signal.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>

#include <absl/cleanup/cleanup.h>
#include <absl/strings/str_cat.h>

#include "common/files/errno_status.h"

namespace muster {
namespace {

// The wrappers of the C library change all threads of the process.
bool set_groups(const std::vector<gid_t>& groups) {
  return syscall(SYS_setgroups, groups.size(), groups.data()) == 0;
}
bool set_file_ids(uid_t uid, gid_t gid) {
  // These calls return the previous value and no error.
  setfsgid(gid);
  setfsuid(uid);
  errno = EPERM;
  return static_cast<gid_t>(setfsgid(static_cast<gid_t>(-1))) == gid &&
         static_cast<uid_t>(setfsuid(static_cast<uid_t>(-1))) == uid;
}

using Capabilities = std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3>;

bool get_capabilities(Capabilities& capabilities) {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  return syscall(SYS_capget, &header, capabilities.data()) == 0;
}
bool set_capabilities(const Capabilities& capabilities) {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  return syscall(SYS_capset, &header, capabilities.data()) == 0;
}

// Changes the capabilities in use, and keeps those that the thread may use.
bool use_capabilities(const std::array<uint32_t, 2>& used) {
  Capabilities capabilities{};
  if (!get_capabilities(capabilities)) return false;
  for (size_t i = 0; i < used.size(); ++i) capabilities.at(i).effective = used.at(i);
  return set_capabilities(capabilities);
}

std::optional<std::vector<gid_t>> current_groups() {
  const int count = getgroups(0, nullptr);
  if (count < 0) return std::nullopt;
  std::vector<gid_t> groups(static_cast<size_t>(count));
  if (getgroups(count, groups.data()) != count) return std::nullopt;
  return groups;
}

// A service manager may have set flags and inheritable capabilities that survive a change of the
// user.
bool drop_capabilities() {
  if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) != 0 && errno != EINVAL)
    return false;
  return set_capabilities({});
}

// Called before the change of the user, who could have used up their quota of keys. Kernels
// without keys have none to lose, and a container whose filter forbids this call forbids every use
// of keys.
bool leave_session_keys() {
  return syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, nullptr) >= 0 || errno == ENOSYS ||
         errno == EPERM;
}

}  // namespace

std::optional<UserIds> foreign_owner(const std::string& folder) {
  if (geteuid() != 0) return std::nullopt;
  struct stat info {};
  struct stat parent {};
  if (lstat(folder.c_str(), &info) != 0 && errno == ENOENT) return std::nullopt;
  // Users may mount file systems on their folders, which claim any owner or refuse to be read.
  if (!S_ISDIR(info.st_mode) || stat((folder + "/..").c_str(), &parent) != 0 ||
      parent.st_dev != info.st_dev)
    return UserIds{.uid = kNobody, .gid = kNobody, .groups = {kNobody}};
  if (info.st_uid == 0) return std::nullopt;
  return UserIds{.uid = info.st_uid, .gid = info.st_gid, .groups = {info.st_gid}};
}

FileRights::FileRights(const std::optional<UserIds>& user) {
  if (!user || user->uid == geteuid()) return;
  Former former{.parent = getppid()};
  auto groups = current_groups();
  Capabilities capabilities{};
  if (groups && get_capabilities(capabilities) &&
      prctl(PR_GET_PDEATHSIG, &former.parent_death_signal) == 0) {
    for (size_t i = 0; i < capabilities.size(); ++i)
      former.capabilities.at(i) = capabilities.at(i).effective;
    former.groups = *std::move(groups);
    // Capabilities would open what the user cannot, such as another process's files in /proc.
    if (set_groups(user->groups)) {
      former_ = std::move(former);
      if (set_file_ids(user->uid, user->gid) && use_capabilities({})) return;
    }
  }
  status_ =
      absl::InternalError(absl::StrCat(errno_status(errno, "taking a user's rights").message(),
                                       ": it needs root's capabilities SETUID and SETGID"));
}

FileRights::~FileRights() {
  if (!former_) return;
  const int error = errno;
  const absl::Cleanup keep_error = [error] { errno = error; };
  if (!use_capabilities(former_->capabilities) || !set_file_ids(geteuid(), getegid()) ||
      !set_groups(former_->groups))
    std::abort();
  // The kernel has cleared it.
  if (former_->parent_death_signal == 0) return;
  prctl(PR_SET_PDEATHSIG, former_->parent_death_signal);
  if (getppid() != former_->parent) kill(getpid(), former_->parent_death_signal);
}

bool become_user(const UserIds& user) {
  // Raw calls: those of the C library wait for locks that another thread may have had at the fork.
  return leave_session_keys() && set_groups(user.groups) &&
         syscall(SYS_setresgid, user.gid, user.gid, user.gid) == 0 &&
         syscall(SYS_setresuid, user.uid, user.uid, user.uid) == 0 &&
         prctl(PR_SET_DUMPABLE, 0) == 0 && drop_capabilities();
}

}  // namespace muster
