#include "coordinator/shell/storage/meta_table.h"

#include "daemon/process.h"

namespace muster::coordinator {
namespace {

template <class Id>
absl::StatusOr<Id> read_number(SqliteDatabase& db, const char* sql) {
  const auto number = db.one_number(sql);
  if (!number.ok()) return number.status();
  return Id(static_cast<uint64_t>(*number));
}

}  // namespace

absl::Status name_store(SqliteDatabase& db) {
  const auto id = daemon::draw_random_id();
  if (!id.ok()) return id.status();
  auto insert = db.prepare("INSERT OR IGNORE INTO meta(key, value) VALUES('store_id', ?1)");
  if (!insert.ok()) return insert.status();
  absl::Status status = insert->bind(1, *id);
  return status.ok() ? insert->run("naming the store") : status;
}

absl::StatusOr<StoreId> store_of(SqliteDatabase& db) {
  return read_number<StoreId>(db, "SELECT value FROM meta WHERE key='store_id'");
}

absl::Status raise_epoch(SqliteDatabase& db) {
  return db.run(
      "INSERT INTO meta(key, value) VALUES('epoch', 1) "
      "ON CONFLICT(key) DO UPDATE SET value = value + 1");
}

absl::StatusOr<Epoch> epoch_of(SqliteDatabase& db) {
  return read_number<Epoch>(db, "SELECT value FROM meta WHERE key='epoch'");
}

absl::StatusOr<Epoch> mark_as_left(SqliteDatabase& db) {
  if (absl::Status status = db.run("INSERT OR REPLACE INTO meta(key, value) "
                                   "SELECT 'left_at_epoch', value FROM meta WHERE key='epoch'");
      !status.ok()) {
    return status;
  }
  return left_at_of(db);
}

absl::StatusOr<Epoch> left_at_of(SqliteDatabase& db) {
  return read_number<Epoch>(
      db, "SELECT coalesce((SELECT value FROM meta WHERE key='left_at_epoch'), 0)");
}

absl::StatusOr<JobId> last_job_of(SqliteDatabase& db) {
  return read_number<JobId>(db,
                            "SELECT coalesce((SELECT value FROM meta WHERE key='last_job_id'), 0)");
}

}  // namespace muster::coordinator
