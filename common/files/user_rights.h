// Other users' rights, for a process of root that works for them.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <absl/status/status.h>

namespace muster {

struct UserIds {
  uid_t uid = 0;
  gid_t gid = 0;
  std::vector<gid_t> groups{};  // all groups, including `gid`

  friend bool operator==(const UserIds&, const UserIds&) = default;
};

constexpr uid_t kNobody = 65'534;

// Returns the owner of a folder, with its group alone, for FileRights. Returns nullopt if that is
// this process's user, if this process is not root's, or if there is no such folder; and kNobody if
// the owner is not known, because it is the root of a file system or no folder. Requires that only
// root can replace the folder.
std::optional<UserIds> foreign_owner(const std::string& folder);

// While it exists, file operations of the calling thread have the user's rights, without
// capabilities, so that links in the user's folders lead nowhere that the user could not go. Other
// threads keep their rights, but a thread that is started meanwhile has the user's for good. For
// signals, tracers and access() the thread stays this process's; use faccessat() with AT_EACCESS.
class FileRights {
 public:
  // nullopt, or this process's user: changes nothing.
  explicit FileRights(const std::optional<UserIds>& user);
  // Does not change errno. Ends the process if the former rights cannot be taken back.
  ~FileRights();
  FileRights(const FileRights&) = delete;
  FileRights& operator=(const FileRights&) = delete;

  // Returns Internal if the rights could not be taken. Do nothing in that case.
  const absl::Status& status() const { return status_; }

 private:
  struct Former {
    std::vector<gid_t> groups{};
    std::array<uint32_t, 2> capabilities{};  // those in use
    int parent_death_signal = 0;
    pid_t parent = 0;
  };
  std::optional<Former> former_;  // nullopt: nothing was changed
  absl::Status status_;
};

// Makes the calling process, which has one thread, run as the user for good: without capabilities,
// without the keys of the former user's session, and without core dumps and tracers until it
// executes a program. Clears the process's parent-death signal. Makes only calls that are safe
// between fork and exec. Returns false with errno on failure.
bool become_user(const UserIds& user);

}  // namespace muster
