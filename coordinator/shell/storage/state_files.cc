#include "coordinator/shell/storage/state_files.h"

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include <absl/strings/str_cat.h>

#include "common/files/errno_status.h"
#include "coordinator/shell/storage/sqlite_database.h"

namespace muster::coordinator {
namespace {

std::string moved_file(const std::string& state_dir) {
  return absl::StrCat(own_state_file(state_dir), ".in-etcd");
}

bool exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

absl::Status rename_file(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) == 0) return absl::OkStatus();
  return file_status(errno, absl::StrCat("renaming ", from, " to ", to));
}

// Moves the content of the write-ahead log into the file. A coordinator that was killed leaves one,
// and it belongs to the file's name.
absl::Status empty_log(const std::string& path) {
  {
    auto db = SqliteDatabase::open(path);
    if (!db.ok()) return db.status();
    if (const auto version = db->one_number("PRAGMA user_version"); !version.ok())
      return version.status();
    db->empty_log();
  }
  std::error_code error;
  const std::string log = path + "-wal";
  if (!exists(log) || std::filesystem::file_size(log, error) == 0) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat(log, " could not be emptied: end all programs that use ", path));
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

std::string earlier_state_in_etcd(const std::string& state_dir) {
  for (std::string file : {mirror_file(state_dir), moved_file(state_dir)})
    if (exists(file)) return file;
  return "";
}

absl::Status check_state_files(const std::string& state_dir, bool has_etcd) {
  if (has_etcd && exists(own_state_file(state_dir))) {
    return absl::FailedPreconditionError(
        absl::StrCat(own_state_file(state_dir),
                     " is the state of a coordinator without --etcd: copy it to etcd by one start "
                     "with --move-state-to-etcd, or move the file away if it is not needed"));
  }
  if (has_etcd) return absl::OkStatus();
  const std::string file = earlier_state_in_etcd(state_dir);
  if (file.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      file,
      ": the state of this coordinator is in etcd, and this copy may be old: start with --etcd. To "
      "leave etcd, stop all coordinators, rename ",
      mirror_file("STATE_DIR"), " of the last leader to muster.db, and move ",
      moved_file("STATE_DIR"), " away"));
}

StateMove::StateMove(std::string from, std::string file, bool continues)
    : from_(std::move(from)), file_(std::move(file)), continues_(continues) {}

absl::StatusOr<StateMove> StateMove::begin(const std::string& state_dir) {
  const std::string from = own_state_file(state_dir);
  const std::string file = moved_file(state_dir);
  if (!exists(from)) {
    if (exists(file)) return StateMove(from, file, /*continues=*/true);
    return absl::NotFoundError(absl::StrCat("no such state file: ", from));
  }
  if (exists(file)) {
    return absl::FailedPreconditionError(
        absl::StrCat(file, " is a state that was moved to etcd earlier, and ", from,
                     " is another one: move the one away that is not needed"));
  }
  absl::Status status = empty_log(from);
  if (status.ok()) status = rename_file(from, file);
  if (!status.ok()) return status;
  return StateMove(from, file, /*continues=*/false);
}

absl::Status StateMove::revert() const { return rename_file(file_, from_); }

}  // namespace muster::coordinator
