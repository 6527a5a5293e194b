#include "coordinator/shell/etcd/etcd_storage.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include <absl/cleanup/cleanup.h>
#include <absl/strings/str_cat.h>

#include "coordinator/shell/etcd/row_mirror.h"
#include "coordinator/shell/storage/meta_table.h"
#include "coordinator/shell/storage/sqlite_database.h"
#include "coordinator/shell/storage/sqlite_storage.h"

namespace muster::coordinator {
namespace {

// Opens the file once without the mirror, which raises its schema and names a new store, and then
// stores what this has changed.
absl::Status raise_and_store(const std::string& path, StoredKeys stored, RowMirror& mirror) {
  if (absl::Status status = open_sqlite_storage(path).status(); !status.ok()) return status;
  auto db = SqliteDatabase::open(path);
  if (!db.ok()) return db.status();
  return mirror.store_all(*db, std::move(stored));
}

absl::Status has_lost_its_state(const EtcdClient& client, const std::string& earlier) {
  return absl::FailedPreconditionError(absl::StrCat(
      "etcd at ", client.endpoints(), " has no state under ", client.key(""), ", and ", earlier,
      " is of a state in etcd: correct --etcd or --etcd-prefix. If etcd has lost the state, stop "
      "all coordinators, and run the last leader once with --leave-etcd and once with "
      "--move-state-to-etcd. To begin without jobs, move ",
      earlier, " away"));
}

}  // namespace

bool is_deposed(const absl::Status& status) { return absl::IsAborted(status); }

absl::StatusOr<std::unique_ptr<Storage>> open_etcd_storage(EtcdClient& client, LeaderLease& lease,
                                                           const std::string& sqlite_path,
                                                           const std::string& earlier) {
  auto mirror = std::make_unique<RowMirror>(client, lease);
  if (absl::Status status = mirror->recover(); !status.ok()) return status;
  // The file has its name once etcd has all of it: a file with a name shows a state in etcd.
  const std::string unfinished = sqlite_path + ".new";
  auto stored = mirror->build_file(unfinished);
  if (!stored.ok()) return stored.status();
  if (stored->empty() && !earlier.empty()) return has_lost_its_state(client, earlier);
  absl::Status status = raise_and_store(unfinished, *std::move(stored), *mirror);
  if (status.ok()) status = replace_database(unfinished, sqlite_path);
  if (!status.ok()) return status;
  return open_sqlite_storage(sqlite_path, std::move(mirror));
}

absl::Status import_into_etcd(const std::string& sqlite_path, EtcdClient& client,
                              LeaderLease& lease) {
  std::error_code error;
  if (!std::filesystem::exists(sqlite_path, error))
    return absl::NotFoundError(absl::StrCat("no such state file: ", sqlite_path));
  RowMirror mirror(client, lease);
  if (absl::Status status = mirror.recover(); !status.ok()) return status;
  if (!mirror.is_empty()) {
    return absl::AlreadyExistsError(
        absl::StrCat("etcd at ", client.endpoints(), " already has a state under ", client.key(""),
                     ": choose another --etcd-prefix, or delete its keys"));
  }
  auto source = SqliteDatabase::open(sqlite_path);
  if (!source.ok()) return source.status();
  const std::string copy_path = sqlite_path + ".import";
  const auto remove_copy = [&] {
    for (const char* suffix : {"", "-wal", "-shm"})
      std::filesystem::remove(copy_path + suffix, error);
  };
  remove_copy();
  const auto clean_up = absl::MakeCleanup(remove_copy);
  auto copy = SqliteDatabase::open(copy_path);
  absl::Status status = copy.ok() ? source->copy_to(*copy, {}) : copy.status();
  if (!status.ok()) return status;
  return raise_and_store(copy_path, {}, mirror);
}

absl::StatusOr<bool> is_in_etcd(const std::string& sqlite_path, EtcdClient& client,
                                LeaderLease& lease) {
  RowMirror mirror(client, lease);
  if (absl::Status status = mirror.recover(); !status.ok()) return status;
  const auto stored = mirror.row("meta", {std::string("store_id")});
  if (!stored.ok()) return stored.status();
  auto db = SqliteDatabase::open(sqlite_path);
  if (!db.ok()) return db.status();
  const auto store = store_of(*db);
  if (!store.ok()) return store.status();
  return stored->has_value() &&
         (*stored)->back() == SqliteValue(static_cast<int64_t>(store->value()));
}

}  // namespace muster::coordinator
