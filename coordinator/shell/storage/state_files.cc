#include "coordinator/shell/storage/state_files.h"

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include <absl/functional/function_ref.h>
#include <absl/strings/str_cat.h>

#include "common/files/errno_status.h"
#include "common/files/file_write.h"
#include "coordinator/shell/storage/meta_table.h"
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

std::string log_of(const std::string& path) { return path + "-wal"; }

// Calls `use` with the database, and moves the content of its write-ahead log into the file: a
// coordinator that was killed leaves one, and it belongs to the file's name.
absl::Status use_and_empty_log(const std::string& path,
                               absl::FunctionRef<absl::Status(SqliteDatabase& db)> use) {
  {
    auto db = SqliteDatabase::open(path);
    absl::Status status = db.status();
    if (status.ok()) status = db->one_number("PRAGMA user_version").status();
    if (status.ok()) status = use(*db);
    if (!status.ok()) return status;
    db->empty_log();
  }
  std::error_code error;
  const std::string log = log_of(path);
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
  const std::string mirror = mirror_file(state_dir);
  if (const std::string log = log_of(mirror); exists(log) && !exists(mirror)) {
    return absl::FailedPreconditionError(
        absl::StrCat(log, " has a part of the state, and ", mirror,
                     ", to which it belongs, was renamed: rename it back, and run this coordinator "
                     "once with --leave-etcd"));
  }
  const std::string file = earlier_state_in_etcd(state_dir);
  // After a state has left etcd, the one that was moved there earlier is of no concern.
  const bool has_left = exists(own_state_file(state_dir)) && file != mirror;
  if (file.empty() || has_left) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      file,
      ": the state of this coordinator is in etcd, and this copy may be old: start with --etcd. To "
      "leave etcd, stop all coordinators, and run the last leader once with --leave-etcd"));
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
  absl::Status status = use_and_empty_log(from, [](SqliteDatabase&) { return absl::OkStatus(); });
  if (status.ok()) status = rename_file(from, file);
  if (!status.ok()) return status;
  return StateMove(from, file, /*continues=*/false);
}

absl::Status StateMove::revert() const { return rename_file(file_, from_); }

absl::StatusOr<Epoch> leave_etcd(const std::string& state_dir) {
  const std::string from = mirror_file(state_dir);
  const std::string to = own_state_file(state_dir);
  if (!exists(from)) {
    return absl::NotFoundError(absl::StrCat(
        "no such file: ", from, ": this coordinator has not led with etcd, or has left it"));
  }
  if (exists(to)) {
    return absl::FailedPreconditionError(
        absl::StrCat(to, " is a state already: move it away if ", from, " is to replace it"));
  }
  absl::StatusOr<Epoch> epoch = Epoch(0);
  const auto mark = [&](SqliteDatabase& db) -> absl::Status {
    const auto found = db.one_text("PRAGMA quick_check(1)");
    if (!found.ok()) return found.status();
    if (*found != "ok") return absl::DataLossError(absl::StrCat(from, " is damaged: ", *found));
    epoch = mark_as_left(db);
    return epoch.status();
  };
  absl::Status status = use_and_empty_log(from, mark);
  if (status.ok()) status = sync_path(from);  // as a copy it was not synced
  if (status.ok()) status = rename_file(from, to);
  if (!status.ok()) return status;
  return epoch;
}

}  // namespace muster::coordinator
