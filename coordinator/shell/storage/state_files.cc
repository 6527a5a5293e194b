#include "coordinator/shell/storage/state_files.h"

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include <absl/strings/str_cat.h>

#include "common/files/errno_status.h"

namespace muster::coordinator {
namespace {

std::string retired_file(const std::string& state_dir) {
  return absl::StrCat(own_state_file(state_dir), ".in-etcd");
}

bool exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

}  // namespace

std::string own_state_file(const std::string& state_dir) {
  return absl::StrCat(state_dir, "/muster.db");
}

std::string mirror_file(const std::string& state_dir) {
  return absl::StrCat(state_dir, "/etcd-mirror.db");
}

std::string present_file(const std::string& state_dir) {
  return exists(mirror_file(state_dir)) ? mirror_file(state_dir) : own_state_file(state_dir);
}

absl::Status check_state_files(const std::string& state_dir, bool has_etcd) {
  if (has_etcd && exists(own_state_file(state_dir))) {
    return absl::FailedPreconditionError(
        absl::StrCat(own_state_file(state_dir),
                     " is the state of a coordinator without --etcd: copy it to etcd by one start "
                     "with --move-state-to-etcd, or move the file away if it is not needed"));
  }
  if (has_etcd) return absl::OkStatus();
  for (const std::string& file : {mirror_file(state_dir), retired_file(state_dir)}) {
    if (!exists(file)) continue;
    return absl::FailedPreconditionError(
        absl::StrCat(file,
                     ": the state of this coordinator is in etcd, and this copy may be old: "
                     "start with --etcd. To leave etcd, stop all coordinators, rename ",
                     mirror_file("STATE_DIR"), " of the last leader to muster.db, and move ",
                     retired_file("STATE_DIR"), " away"));
  }
  return absl::OkStatus();
}

absl::Status retire_state_file(const std::string& state_dir) {
  const std::string from = own_state_file(state_dir);
  const std::string to = retired_file(state_dir);
  if (std::rename(from.c_str(), to.c_str()) == 0) return absl::OkStatus();
  return file_status(errno, absl::StrCat("renaming ", from, " to ", to));
}

}  // namespace muster::coordinator
