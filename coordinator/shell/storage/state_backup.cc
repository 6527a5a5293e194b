#include "coordinator/shell/storage/state_backup.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include <absl/strings/str_cat.h>

#include "common/files/file_write.h"
#include "common/files/free_space.h"
#include "coordinator/shell/storage/space_reserve.h"
#include "coordinator/shell/storage/sqlite_database.h"
#include "coordinator/shell/storage/state_files.h"

namespace muster::coordinator {
namespace {

namespace fs = std::filesystem;

std::string copy_path(const std::string& state_dir) {
  return absl::StrCat(state_dir, "/backup.tmp");
}

uint64_t bytes_of(const std::string& path) {
  std::error_code error;
  const auto size = fs::file_size(path, error);
  return error ? 0 : size;
}

// The coordinator's own transactions must find space during the copy.
absl::Status check_space(const std::string& state_dir) {
  const uint64_t needed = state_bytes(state_dir) + static_cast<uint64_t>(kReservedBytes);
  const auto free = free_space_bytes(state_dir);
  if (!free || *free >= needed) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("a copy of the state needs ", needed >> 20,
                                                   " MiB on the disk of ", state_dir, ", and ",
                                                   *free >> 20, " MiB are free: make room"));
}

absl::Status copy(const std::string& from, const std::string& to, const std::stop_token& stop) {
  auto source = SqliteDatabase::open(from);
  if (!source.ok()) return source.status();
  auto target = SqliteDatabase::open(to);
  if (!target.ok()) return target.status();
  target->stop_on(stop);
  absl::Status status = source->copy_to(*target, stop);
  if (status.ok())
    status = target->run("PRAGMA journal_mode=DELETE; DELETE FROM meta WHERE key='store_id';");
  if (!status.ok()) return status;
  const auto found = target->one_text("PRAGMA integrity_check(1)");
  if (!found.ok()) return found.status();
  if (*found == "ok") return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("state file ", from, " is damaged: ", *found));
}

}  // namespace

uint64_t state_bytes(const std::string& state_dir) {
  const std::string database = present_file(state_dir);
  return bytes_of(database) + bytes_of(absl::StrCat(database, "-wal"));
}

absl::StatusOr<StateBackup> StateBackup::make(const std::string& state_dir,
                                              const std::stop_token& stop) {
  remove_left(state_dir);
  if (absl::Status status = check_space(state_dir); !status.ok()) return status;
  StateBackup backup(copy_path(state_dir));
  absl::Status status = copy(present_file(state_dir), backup.path(), stop);
  if (status.ok()) status = sync_path(backup.path());
  if (!status.ok()) return status;
  return backup;
}

void StateBackup::remove_left(const std::string& state_dir) {
  std::error_code ignored;
  for (const char* suffix : {"", "-journal", "-wal", "-shm"})
    fs::remove(absl::StrCat(copy_path(state_dir), suffix), ignored);
}

StateBackup::StateBackup(StateBackup&& other) noexcept
    : path_(std::exchange(other.path_, std::string())) {}

StateBackup::~StateBackup() {
  if (!path_.empty()) remove_left(fs::path(path_).parent_path());
}

}  // namespace muster::coordinator
