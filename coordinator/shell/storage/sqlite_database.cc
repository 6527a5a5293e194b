#include "coordinator/shell/storage/sqlite_database.h"

#include <cerrno>
#include <utility>

#include <absl/cleanup/cleanup.h>
#include <absl/strings/str_cat.h>
#include <sqlite3.h>

namespace muster::coordinator {
namespace {

bool is_lack_of_space(int error) { return error == ENOSPC || error == EDQUOT || error == EFBIG; }

// Returns whether the error is a lack of space. SQLite reports "full" only for writes without
// space; an exceeded quota or limit of file sizes, or a disk that is full at fsync, appears as an
// I/O error. SQLite does not record the system's error of a COMMIT, so `system_error`, errno after
// the call, counts as well.
bool has_no_room(sqlite3* db, int code, int system_error) {
  if ((code & 0xFF) != SQLITE_IOERR || db == nullptr) return false;
  return is_lack_of_space(sqlite3_system_errno(db)) || is_lack_of_space(system_error);
}

absl::Status sqlite_error(sqlite3* db, int code, const std::string& path, const char* what) {
  const int system_error = errno;
  const std::string text = absl::StrCat("state file ", path, ": ", what, ": ",
                                        db != nullptr ? sqlite3_errmsg(db) : sqlite3_errstr(code));
  const int kind = has_no_room(db, code, system_error) ? SQLITE_FULL : code & 0xFF;
  switch (kind) {
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return absl::DataLossError(absl::StrCat(
          text, "; restore it from a copy, or move it away to begin with an empty one"));
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return absl::UnavailableError(absl::StrCat(text, "; another program holds it"));
    case SQLITE_FULL:
      return absl::ResourceExhaustedError(absl::StrCat(text, "; make room on its disk"));
    case SQLITE_INTERRUPT:
      return absl::CancelledError(absl::StrCat(text, "; it was stopped"));
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_CANTOPEN:
      return absl::PermissionDeniedError(absl::StrCat(text, "; its folder must be writable"));
    default:
      return absl::InternalError(text);
  }
}

}  // namespace

void SqliteDatabase::Close::operator()(sqlite3* db) const { sqlite3_close_v2(db); }

void SqliteDatabase::Statement::Finalize::operator()(sqlite3_stmt* statement) const {
  sqlite3_finalize(statement);
}

absl::StatusOr<SqliteDatabase> SqliteDatabase::open(const std::string& path) {
  sqlite3* db = nullptr;
  const int code = sqlite3_open_v2(
      path.c_str(), &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, nullptr);
  SqliteDatabase database(db, path);
  if (code != SQLITE_OK) return database.error(code, "opening it");
  sqlite3_extended_result_codes(db, 1);
  return database;
}

absl::Status SqliteDatabase::error(int code, const char* what) const {
  return sqlite_error(db_.get(), code, path_, what);
}

absl::Status SqliteDatabase::run(const char* sql) {
  errno = 0;
  const int code = sqlite3_exec(db_.get(), sql, nullptr, nullptr, nullptr);
  return code == SQLITE_OK ? absl::OkStatus() : error(code, sql);
}

absl::StatusOr<SqliteDatabase::Statement> SqliteDatabase::prepare(const char* sql) {
  sqlite3_stmt* statement = nullptr;
  const int code = sqlite3_prepare_v2(db_.get(), sql, -1, &statement, nullptr);
  if (code != SQLITE_OK) return error(code, sql);
  return Statement(*this, statement);
}

absl::StatusOr<int64_t> SqliteDatabase::one_number(const char* sql) {
  auto statement = prepare(sql);
  if (!statement.ok()) return statement.status();
  const auto row = statement->next_row();
  if (!row.ok()) return row.status();
  return *row ? absl::StatusOr<int64_t>(statement->number(0)) : error(SQLITE_DONE, sql);
}

absl::StatusOr<std::string> SqliteDatabase::one_text(const char* sql) {
  auto statement = prepare(sql);
  if (!statement.ok()) return statement.status();
  const auto row = statement->next_row();
  if (!row.ok()) return row.status();
  return *row ? absl::StatusOr<std::string>(statement->text(0)) : error(SQLITE_DONE, sql);
}

void SqliteDatabase::set_busy_timeout(int milliseconds) {
  sqlite3_busy_timeout(db_.get(), milliseconds);
}

void SqliteDatabase::stop_on(std::stop_token stop) {
  // Instructions of SQLite's virtual machine between two checks, some 10 ms.
  constexpr int kInstructions = 100'000;
  stop_ = std::make_unique<std::stop_token>(std::move(stop));
  sqlite3_progress_handler(
      db_.get(), kInstructions,
      [](void* token) { return static_cast<std::stop_token*>(token)->stop_requested() ? 1 : 0; },
      stop_.get());
}

absl::Status SqliteDatabase::copy_to(SqliteDatabase& target, const std::stop_token& stop) {
  // The pages between two checks for a stop: 4 MiB.
  constexpr int kPages = 1024;
  // Without a transaction, SQLite begins again when another connection commits between two steps.
  absl::Status status = run("BEGIN; SELECT count(*) FROM sqlite_schema;");
  if (!status.ok()) return status;
  const auto end_it = absl::MakeCleanup([this] { run("ROLLBACK").IgnoreError(); });
  errno = 0;
  sqlite3_backup* copy = sqlite3_backup_init(target.db_.get(), "main", db_.get(), "main");
  if (copy == nullptr) return target.error(sqlite3_errcode(target.db_.get()), "copying");
  int step = SQLITE_OK;
  while (step == SQLITE_OK && !stop.stop_requested()) step = sqlite3_backup_step(copy, kPages);
  const int code = sqlite3_backup_finish(copy);
  if (step == SQLITE_OK)
    return absl::CancelledError(absl::StrCat("copying state file ", path_, " was stopped"));
  if (step == SQLITE_DONE && code == SQLITE_OK) return absl::OkStatus();
  return target.error(code == SQLITE_OK ? step : code, "copying");
}

void SqliteDatabase::empty_log() {
  sqlite3_wal_checkpoint_v2(db_.get(), nullptr, SQLITE_CHECKPOINT_TRUNCATE, nullptr, nullptr);
}

absl::Status SqliteDatabase::Statement::bound(int code, const char* what) const {
  return code == SQLITE_OK ? absl::OkStatus() : database_->error(code, what);
}

absl::Status SqliteDatabase::Statement::bind(int parameter, std::string_view text) {
  return bound(sqlite3_bind_text64(statement_.get(), parameter, text.data(), text.size(),
                                   SQLITE_STATIC, SQLITE_UTF8),
               "binding a text");
}

absl::Status SqliteDatabase::Statement::bind(int parameter, uint64_t number) {
  return bound(sqlite3_bind_int64(statement_.get(), parameter, static_cast<int64_t>(number)),
               "binding a number");
}

absl::Status SqliteDatabase::Statement::bind_blob(int parameter, std::string_view bytes) {
  return bound(
      sqlite3_bind_blob64(statement_.get(), parameter, bytes.data(), bytes.size(), SQLITE_STATIC),
      "binding bytes");
}

absl::Status SqliteDatabase::Statement::bind_value(int parameter, const SqliteValue& value) {
  if (const auto* number = std::get_if<int64_t>(&value))
    return bind(parameter, static_cast<uint64_t>(*number));
  if (const auto* text = std::get_if<std::string>(&value)) return bind(parameter, *text);
  if (const auto* blob = std::get_if<SqliteBlob>(&value)) return bind_blob(parameter, blob->bytes);
  const auto* real = std::get_if<double>(&value);
  return bound(real != nullptr ? sqlite3_bind_double(statement_.get(), parameter, *real)
                               : sqlite3_bind_null(statement_.get(), parameter),
               "binding a value");
}

void SqliteDatabase::Statement::reset() { sqlite3_reset(statement_.get()); }

absl::StatusOr<bool> SqliteDatabase::Statement::next_row() {
  errno = 0;
  const int code = sqlite3_step(statement_.get());
  if (code == SQLITE_ROW || code == SQLITE_DONE) return code == SQLITE_ROW;
  return database_->error(code, sqlite3_sql(statement_.get()));
}

absl::Status SqliteDatabase::Statement::run(const char* what) {
  errno = 0;
  const int code = sqlite3_step(statement_.get());
  absl::Status status = code == SQLITE_DONE ? absl::OkStatus() : database_->error(code, what);
  sqlite3_reset(statement_.get());  // repeats the error of the step
  return status;
}

int64_t SqliteDatabase::Statement::number(int column) const {
  return sqlite3_column_int64(statement_.get(), column);
}

std::string_view SqliteDatabase::Statement::text(int column) const {
  const void* bytes = sqlite3_column_blob(statement_.get(), column);
  const auto size = static_cast<size_t>(sqlite3_column_bytes(statement_.get(), column));
  return bytes == nullptr ? std::string_view()
                          : std::string_view(static_cast<const char*>(bytes), size);
}

int SqliteDatabase::Statement::columns() const { return sqlite3_column_count(statement_.get()); }

SqliteValue SqliteDatabase::Statement::value(int column) const {
  switch (sqlite3_column_type(statement_.get(), column)) {
    case SQLITE_INTEGER:
      return number(column);
    case SQLITE_FLOAT:
      return sqlite3_column_double(statement_.get(), column);
    case SQLITE_TEXT:
      return std::string(text(column));
    case SQLITE_BLOB:
      return SqliteBlob{std::string(text(column))};
    default:
      return std::monostate();
  }
}

}  // namespace muster::coordinator
