// The users of ranks that do not run as the worker's own user (--run-as-owner).
#pragma once

#include <map>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "common/files/user_rights.h"
#include "daemon/client_trust.h"

namespace muster::worker {

struct RankUser {
  std::string name{};
  UserIds ids{};
  std::string home{};
  std::string shell{};
};

// Returns the user `owner` of this node with its groups. May block: the names may be in a service.
// Errors: PermissionDenied for an empty `owner`, for a user that this node does not have, and for
// root unless `permits_root`. A failed query is a fault of the node (node_fault()).
absl::StatusOr<RankUser> find_rank_user(const std::string& owner, bool permits_root);

// A file or program that the worker uses; an empty path: it has none.
struct FlaggedFile {
  std::string flag{};  // or what the file is
  std::string path{};
  bool is_secret = false;  // only root may read it
};

// Returns the files by which ranks could get the rights of a worker that runs as root: its secrets
// and authorities, and the programs that it executes. `check_program`: that of node checks; empty:
// none.
std::vector<FlaggedFile> files_of_worker(const daemon::ClientTrust& trust,
                                         const std::string& trainer,
                                         const std::string& check_program);

// Checks that this worker can run ranks as other users, and that they can neither read its secrets
// nor replace its files and its work directory. Lets them pass through the work directory, and
// checks that they can pass through its parents. Errors name the flag, the path and what would be
// right.
absl::Status admit_users(const std::string& work_dir, const std::vector<FlaggedFile>& files);

// Returns the variables that a login sets: HOME, USER, LOGNAME, SHELL.
std::map<std::string, std::string> login_variables(const RankUser& user);

// Makes a folder of the user `ids` with the mode, in a parent that only this process's user can
// change. A folder of the user stays, but a folder of another user in its place, a file or a link
// is renamed to PATH.of-UID-N: its owner could change the content meanwhile. Requires that no other
// thread makes the same folder at the same time.
absl::Status make_folder_of(const UserIds& ids, const std::string& path, mode_t mode);

}  // namespace muster::worker
