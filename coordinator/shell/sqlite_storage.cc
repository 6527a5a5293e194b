#include "coordinator/shell/sqlite_storage.h"

#include <algorithm>
#include <utility>

#include <absl/strings/str_cat.h>
#include <sqlite3.h>

#include "coordinator/shell/job_record.h"
#include "daemon/process.h"

namespace muster::coordinator {
namespace {

// Somebody looking at the file with sqlite3 may hold it for a moment.
constexpr int kBusyTimeoutMs = 5'000;

struct CloseDatabase {
  void operator()(sqlite3* db) const { sqlite3_close_v2(db); }
};
struct FinalizeStatement {
  void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
};
using Database = std::unique_ptr<sqlite3, CloseDatabase>;
using Statement = std::unique_ptr<sqlite3_stmt, FinalizeStatement>;

absl::Status sqlite_error(sqlite3* db, int code, const std::string& path, const char* what) {
  const std::string text = absl::StrCat("state file ", path, ": ", what, ": ",
                                        db != nullptr ? sqlite3_errmsg(db) : sqlite3_errstr(code));
  switch (code & 0xFF) {
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return absl::DataLossError(
          absl::StrCat(text, "; restore it from a copy, or move it away to begin anew"));
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return absl::UnavailableError(absl::StrCat(text, "; another program holds it"));
    case SQLITE_FULL:
      return absl::ResourceExhaustedError(absl::StrCat(text, "; make room on its disk"));
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_CANTOPEN:
      return absl::PermissionDeniedError(absl::StrCat(text, "; its folder must be writable"));
    default:
      return absl::InternalError(text);
  }
}

// Records in it replace others that had an environment's values.
bool ends_with_secrets(const StorageBatch& batch) {
  return std::any_of(batch.jobs.begin(), batch.jobs.end(), [](const auto& entry) {
    return is_terminal(entry.second.state) && !entry.second.spec.environment.empty();
  });
}

class SqliteStorage final : public Storage {
 public:
  SqliteStorage(Database db, std::string path) : db_(std::move(db)), path_(std::move(path)) {}

  absl::Status set_up();
  absl::StatusOr<DurableState> load() override;
  absl::Status commit(const StorageBatch& batch) override;
  absl::StatusOr<Epoch> begin_epoch() override;

 private:
  absl::Status run(const char* sql);
  absl::StatusOr<Statement> prepare(const char* sql);
  // Texts must outlive the statement's run.
  absl::Status bind(sqlite3_stmt* statement, int column, std::string_view text);
  absl::Status bind(sqlite3_stmt* statement, int column, uint64_t number);
  // Runs a statement that returns no rows.
  absl::Status finish(sqlite3_stmt* statement, const char* what);
  absl::Status demand_wal();
  absl::StatusOr<int64_t> one_number(const char* sql);
  absl::Status check_pages();
  absl::Status create_tables();
  absl::Status name_store();
  absl::Status write(const StorageBatch& batch);
  void empty_log();
  absl::Status error(int code, const char* what) {
    return sqlite_error(db_.get(), code, path_, what);
  }

  Database db_;
  std::string path_;
};

absl::Status SqliteStorage::run(const char* sql) {
  const int code = sqlite3_exec(db_.get(), sql, nullptr, nullptr, nullptr);
  return code == SQLITE_OK ? absl::OkStatus() : error(code, sql);
}

absl::StatusOr<Statement> SqliteStorage::prepare(const char* sql) {
  sqlite3_stmt* statement = nullptr;
  const int code = sqlite3_prepare_v2(db_.get(), sql, -1, &statement, nullptr);
  if (code != SQLITE_OK) return error(code, sql);
  return Statement(statement);
}

absl::Status SqliteStorage::finish(sqlite3_stmt* statement, const char* what) {
  const int code = sqlite3_step(statement);
  const absl::Status status = code == SQLITE_DONE ? absl::OkStatus() : error(code, what);
  sqlite3_reset(statement);  // repeats the error of the step
  return status;
}

absl::Status SqliteStorage::bind(sqlite3_stmt* statement, int column, std::string_view text) {
  const int code =
      sqlite3_bind_text64(statement, column, text.data(), text.size(), SQLITE_STATIC, SQLITE_UTF8);
  return code == SQLITE_OK ? absl::OkStatus() : error(code, "binding a text");
}

absl::Status SqliteStorage::bind(sqlite3_stmt* statement, int column, uint64_t number) {
  const int code = sqlite3_bind_int64(statement, column, static_cast<int64_t>(number));
  return code == SQLITE_OK ? absl::OkStatus() : error(code, "binding a number");
}

// What cannot be had is answered with the mode in force, not with an error.
absl::Status SqliteStorage::demand_wal() {
  auto statement = prepare("PRAGMA journal_mode=WAL");
  if (!statement.ok()) return statement.status();
  const int code = sqlite3_step(statement->get());
  if (code != SQLITE_ROW) return error(code, "setting journal_mode");
  const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(statement->get(), 0));
  const std::string mode = text != nullptr ? text : "";
  if (mode == "wal") return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("state file ", path_, " has the journal mode ", mode,
                   " and cannot have wal: keep the state on a local disk"));
}

absl::StatusOr<int64_t> SqliteStorage::one_number(const char* sql) {
  auto statement = prepare(sql);
  if (!statement.ok()) return statement.status();
  const int code = sqlite3_step(statement->get());
  if (code != SQLITE_ROW) return error(code, sql);
  return sqlite3_column_int64(statement->get(), 0);
}

absl::Status SqliteStorage::check_pages() {
  auto statement = prepare("PRAGMA quick_check(1)");
  if (!statement.ok()) return statement.status();
  const int code = sqlite3_step(statement->get());
  if (code != SQLITE_ROW) return error(code, "quick_check");
  const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(statement->get(), 0));
  if (text != nullptr && std::string(text) == "ok") return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat("state file ", path_, " is damaged: ", text != nullptr ? text : "",
                   "; restore it from a copy, or move it away to begin anew"));
}

absl::Status SqliteStorage::set_up() {
  sqlite3_busy_timeout(db_.get(), kBusyTimeoutMs);
  sqlite3_extended_result_codes(db_.get(), 1);
  absl::Status set = demand_wal();
  // What is replaced or deleted is overwritten: secrets of an ended job's environment leave no copy.
  if (set.ok())
    set = run("PRAGMA synchronous=FULL; PRAGMA cache_size=-1024; PRAGMA secure_delete=ON;");
  if (!set.ok()) return set;
  if (absl::Status status = check_pages(); !status.ok()) return status;
  auto version = one_number("PRAGMA user_version");
  if (!version.ok()) return version.status();
  if (*version > kSchemaVersion) {
    return absl::FailedPreconditionError(absl::StrCat(
        "state file ", path_, " has schema version ", *version, " and this program knows ",
        kSchemaVersion, ": a newer version of Muster wrote it"));
  }
  if (*version < kSchemaVersion) {
    if (absl::Status status = create_tables(); !status.ok()) return status;
  }
  empty_log();  // an earlier life may have ended before it did
  return name_store();
}

absl::Status SqliteStorage::create_tables() {
  return run(
      "BEGIN IMMEDIATE;"
      "CREATE TABLE jobs(id INTEGER PRIMARY KEY, record TEXT NOT NULL);"
      "CREATE TABLE request_ids(request_id TEXT PRIMARY KEY, job INTEGER NOT NULL) WITHOUT ROWID;"
      "CREATE INDEX request_ids_by_job ON request_ids(job);"
      "CREATE TABLE meta(key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;"
      "PRAGMA user_version=1;"
      "COMMIT;");
}

// Once: the state of an earlier version has no name yet.
absl::Status SqliteStorage::name_store() {
  const auto id = daemon::draw_random_id();
  if (!id.ok()) return id.status();
  auto statement = prepare("INSERT OR IGNORE INTO meta(key, value) VALUES('store_id', ?1)");
  if (!statement.ok()) return statement.status();
  if (absl::Status status = bind(statement->get(), 1, *id); !status.ok()) return status;
  return finish(statement->get(), "naming the store");
}

absl::StatusOr<DurableState> SqliteStorage::load() {
  DurableState state;
  const auto store = one_number("SELECT value FROM meta WHERE key='store_id'");
  if (!store.ok()) return store.status();
  state.store = StoreId(static_cast<uint64_t>(*store));
  auto jobs = prepare("SELECT id, record FROM jobs ORDER BY id");
  if (!jobs.ok()) return jobs.status();
  int code = SQLITE_OK;
  while ((code = sqlite3_step(jobs->get())) == SQLITE_ROW) {
    const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(jobs->get(), 1));
    const auto bytes = static_cast<size_t>(sqlite3_column_bytes(jobs->get(), 1));
    auto job = job_from_record(std::string_view(text != nullptr ? text : "", bytes));
    if (!job.ok()) {
      return absl::DataLossError(absl::StrCat("state file ", path_, ": the record of job ",
                                              sqlite3_column_int64(jobs->get(), 0),
                                              " cannot be read: ", job.status().message()));
    }
    state.jobs.push_back(*std::move(job));
  }
  if (code != SQLITE_DONE) return error(code, "reading jobs");
  auto requests = prepare("SELECT request_id, job FROM request_ids");
  if (!requests.ok()) return requests.status();
  while ((code = sqlite3_step(requests->get())) == SQLITE_ROW) {
    const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(requests->get(), 0));
    state.request_ids.emplace(
        text != nullptr ? text : "",
        JobId(static_cast<uint64_t>(sqlite3_column_int64(requests->get(), 1))));
  }
  if (code != SQLITE_DONE) return error(code, "reading request ids");
  const auto last =
      one_number("SELECT coalesce((SELECT value FROM meta WHERE key='last_job_id'), 0)");
  if (!last.ok()) return last.status();
  state.last_job_id = JobId(static_cast<uint64_t>(*last));
  return state;
}

absl::Status SqliteStorage::write(const StorageBatch& batch) {
  auto put_job = prepare("INSERT OR REPLACE INTO jobs(id, record) VALUES(?1, ?2)");
  auto put_request = prepare("INSERT OR REPLACE INTO request_ids(request_id, job) VALUES(?1, ?2)");
  auto drop_job = prepare("DELETE FROM jobs WHERE id=?1");
  auto drop_requests = prepare("DELETE FROM request_ids WHERE job=?1");
  for (const auto* statement : {&put_job, &put_request, &drop_job, &drop_requests}) {
    if (!statement->ok()) return statement->status();
  }
  for (const auto& [id, job] : batch.jobs) {
    const std::string record = job_to_record(job);
    absl::Status status = bind(put_job->get(), 1, id.value());
    if (status.ok()) status = bind(put_job->get(), 2, record);
    if (status.ok()) status = finish(put_job->get(), "storing a job");
    if (!status.ok()) return status;
  }
  for (const auto& [request_id, job] : batch.request_ids) {
    absl::Status status = bind(put_request->get(), 1, request_id);
    if (status.ok()) status = bind(put_request->get(), 2, job.value());
    if (status.ok()) status = finish(put_request->get(), "storing a request id");
    if (!status.ok()) return status;
  }
  if (batch.last_job_id != JobId(0)) {
    auto put_last = prepare("INSERT OR REPLACE INTO meta(key, value) VALUES('last_job_id', ?1)");
    if (!put_last.ok()) return put_last.status();
    absl::Status status = bind(put_last->get(), 1, batch.last_job_id.value());
    if (status.ok()) status = finish(put_last->get(), "storing the last job number");
    if (!status.ok()) return status;
  }
  for (const JobId id : batch.forgotten) {
    for (sqlite3_stmt* statement : {drop_job->get(), drop_requests->get()}) {
      absl::Status status = bind(statement, 1, id.value());
      if (status.ok()) status = finish(statement, "forgetting a job");
      if (!status.ok()) return status;
    }
  }
  return absl::OkStatus();
}

absl::Status SqliteStorage::commit(const StorageBatch& batch) {
  if (batch.empty()) return absl::OkStatus();
  absl::Status status = run("BEGIN IMMEDIATE");
  if (!status.ok()) return status;
  status = write(batch);
  if (status.ok()) status = run("COMMIT");
  // Best effort: after some errors SQLite has rolled back by itself.
  if (!status.ok()) sqlite3_exec(db_.get(), "ROLLBACK", nullptr, nullptr, nullptr);
  if (status.ok() && ends_with_secrets(batch)) empty_log();
  return status;
}

// The write-ahead log has earlier records until it is written over. Best effort: who reads the file just now holds it.
void SqliteStorage::empty_log() {
  sqlite3_busy_timeout(db_.get(), 0);
  sqlite3_wal_checkpoint_v2(db_.get(), nullptr, SQLITE_CHECKPOINT_TRUNCATE, nullptr, nullptr);
  sqlite3_busy_timeout(db_.get(), kBusyTimeoutMs);
}

absl::StatusOr<Epoch> SqliteStorage::begin_epoch() {
  if (absl::Status status = run("INSERT INTO meta(key, value) VALUES('epoch', 1) "
                                "ON CONFLICT(key) DO UPDATE SET value = value + 1");
      !status.ok()) {
    return status;
  }
  auto epoch = one_number("SELECT value FROM meta WHERE key='epoch'");
  if (!epoch.ok()) return epoch.status();
  return Epoch(static_cast<uint64_t>(*epoch));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Storage>> open_sqlite_storage(const std::string& path) {
  sqlite3* raw = nullptr;
  const int code =
      sqlite3_open_v2(path.c_str(), &raw,
                      SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, nullptr);
  Database db(raw);
  if (code != SQLITE_OK) return sqlite_error(raw, code, path, "opening it");
  auto storage = std::make_unique<SqliteStorage>(std::move(db), path);
  if (absl::Status status = storage->set_up(); !status.ok()) return status;
  return storage;
}

}  // namespace muster::coordinator
