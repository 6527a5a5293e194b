#include "coordinator/shell/storage/sqlite_rows.h"

#include <map>
#include <utility>

#include <absl/cleanup/cleanup.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
// The distributions' SQLite has sessions; these names make its header declare them.
#define SQLITE_ENABLE_SESSION
#define SQLITE_ENABLE_PREUPDATE_HOOK
#include <sqlite3.h>

namespace muster::coordinator {
namespace {

using Statement = SqliteDatabase::Statement;

std::string quoted(const std::string& name) {
  std::string text = "\"";
  for (const char c : name) text.append(c == '"' ? 2 : 1, c);
  return text + '"';
}

absl::StatusOr<std::vector<std::string>> texts(SqliteDatabase& db, const char* sql) {
  auto rows = db.prepare(sql);
  if (!rows.ok()) return rows.status();
  std::vector<std::string> found;
  absl::StatusOr<bool> row;
  while ((row = rows->next_row()).ok() && *row) found.emplace_back(rows->text(0));
  if (!row.ok()) return row.status();
  return found;
}

SqliteRow row_of(const Statement& statement) {
  SqliteRow row;
  for (int column = 0; column < statement.columns(); ++column)
    row.push_back(statement.value(column));
  return row;
}

absl::Status bind_all(Statement& statement, const SqliteRow& row) {
  int parameter = 0;
  for (const SqliteValue& value : row) {
    if (absl::Status status = statement.bind_value(++parameter, value); !status.ok()) return status;
  }
  return absl::OkStatus();
}

// Reads rows of one table by their primary key.
class RowReader {
 public:
  static absl::StatusOr<RowReader> prepare(SqliteDatabase& db, const std::string& table,
                                           const std::vector<unsigned char>& in_key) {
    auto names = db.prepare("SELECT name FROM pragma_table_info(?1) ORDER BY cid");
    if (!names.ok()) return names.status();
    if (absl::Status status = names->bind(1, table); !status.ok()) return status;
    std::vector<std::string> terms;
    for (const unsigned char is_key : in_key) {
      if (const auto row = names->next_row(); !row.ok()) return row.status();
      if (is_key != 0) terms.push_back(absl::StrCat(quoted(std::string(names->text(0))), "=?"));
    }
    auto rows = db.prepare(
        absl::StrCat("SELECT * FROM ", quoted(table), " WHERE ", absl::StrJoin(terms, " AND "))
            .c_str());
    if (!rows.ok()) return rows.status();
    return RowReader(*std::move(rows));
  }

  absl::StatusOr<SqliteRow> read(const SqliteRow& key) {
    if (absl::Status status = bind_all(rows_, key); !status.ok()) return status;
    const auto found = rows_.next_row();
    if (!found.ok()) return found.status();
    if (!*found) return absl::InternalError("a changed row has disappeared");
    SqliteRow row = row_of(rows_);
    rows_.reset();
    return row;
  }

 private:
  explicit RowReader(Statement rows) : rows_(std::move(rows)) {}

  Statement rows_;
};

SqliteValue value_of(sqlite3_value* value) {
  const auto bytes = [&] {
    const auto* data = static_cast<const char*>(sqlite3_value_blob(value));
    const auto size = static_cast<size_t>(sqlite3_value_bytes(value));
    return data == nullptr ? std::string() : std::string(data, size);
  };
  switch (sqlite3_value_type(value)) {
    case SQLITE_INTEGER:
      return static_cast<int64_t>(sqlite3_value_int64(value));
    case SQLITE_FLOAT:
      return sqlite3_value_double(value);
    case SQLITE_TEXT:
      return bytes();
    case SQLITE_BLOB:
      return SqliteBlob{bytes()};
    default:
      return std::monostate();
  }
}

// Returns the primary key of the changed row.
absl::StatusOr<SqliteRow> key_of(sqlite3_changeset_iter* change, int operation,
                                 const std::vector<unsigned char>& in_key) {
  SqliteRow key;
  for (size_t column = 0; column < in_key.size(); ++column) {
    if (in_key[column] == 0) continue;
    sqlite3_value* value = nullptr;
    const auto index = static_cast<int>(column);
    const int code = operation == SQLITE_INSERT ? sqlite3changeset_new(change, index, &value)
                                                : sqlite3changeset_old(change, index, &value);
    if (code != SQLITE_OK || value == nullptr)
      return absl::InternalError("a changed row has no primary key");
    key.push_back(value_of(value));
  }
  return key;
}

}  // namespace

absl::StatusOr<std::vector<SqliteTable>> tables_of(SqliteDatabase& db) {
  const auto names = texts(db,
                           "SELECT name FROM sqlite_schema WHERE type='table' AND name NOT LIKE "
                           "'sqlite%' ORDER BY name");
  if (!names.ok()) return names.status();
  auto rows = db.prepare("SELECT pk FROM pragma_table_info(?1) ORDER BY cid");
  if (!rows.ok()) return rows.status();
  std::vector<SqliteTable> tables;
  for (const std::string& name : *names) {
    SqliteTable table;
    table.name = name;
    absl::StatusOr<bool> row = false;
    if (absl::Status status = rows->bind(1, name); !status.ok()) return status;
    for (; (row = rows->next_row()).ok() && *row; ++table.columns) {
      if (rows->number(0) != 0) table.key.push_back(table.columns);
    }
    rows->reset();
    if (!row.ok()) return row.status();
    if (table.key.empty())
      return absl::InternalError(absl::StrCat("the table ", name, " has no primary key"));
    tables.push_back(std::move(table));
  }
  return tables;
}

absl::StatusOr<std::vector<std::string>> schema_of(SqliteDatabase& db) {
  return texts(db,
               "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite%' "
               "ORDER BY type DESC, name");
}

absl::Status for_each_row(SqliteDatabase& db, const SqliteTable& table,
                          absl::FunctionRef<absl::Status(const SqliteRow& row)> use) {
  auto rows = db.prepare(absl::StrCat("SELECT * FROM ", quoted(table.name)).c_str());
  if (!rows.ok()) return rows.status();
  absl::StatusOr<bool> row;
  while ((row = rows->next_row()).ok() && *row) {
    if (absl::Status status = use(row_of(*rows)); !status.ok()) return status;
  }
  return row.status();
}

absl::StatusOr<RowInserter> RowInserter::prepare(SqliteDatabase& db, const SqliteTable& table) {
  const std::vector<std::string> marks(table.columns, "?");
  auto put = db.prepare(
      absl::StrCat("INSERT INTO ", quoted(table.name), " VALUES(", absl::StrJoin(marks, ","), ")")
          .c_str());
  if (!put.ok()) return put.status();
  return RowInserter(*std::move(put));
}

absl::Status RowInserter::insert(const SqliteRow& row) {
  if (absl::Status status = bind_all(put_, row); !status.ok()) return status;
  return put_.run("inserting a row");
}

void ChangeRecorder::Delete::operator()(sqlite3_session* session) const {
  sqlite3session_delete(session);
}

absl::StatusOr<ChangeRecorder> ChangeRecorder::start(SqliteDatabase& db) {
  sqlite3_session* session = nullptr;
  int code = sqlite3session_create(db.handle(), "main", &session);
  ChangeRecorder recorder(db, session);
  if (code == SQLITE_OK) code = sqlite3session_attach(session, nullptr);
  if (code != SQLITE_OK) return db.error(code, "recording changes");
  return recorder;
}

absl::StatusOr<std::vector<RowChange>> ChangeRecorder::changes() {
  int size = 0;
  void* bytes = nullptr;
  int code = sqlite3session_changeset(session_.get(), &size, &bytes);
  const auto free_bytes = absl::MakeCleanup([&] { sqlite3_free(bytes); });
  if (code != SQLITE_OK) return db_.error(code, "collecting changes");
  sqlite3_changeset_iter* change = nullptr;
  code = sqlite3changeset_start(&change, size, bytes);
  if (code != SQLITE_OK) return db_.error(code, "collecting changes");
  const auto finalize = absl::MakeCleanup([&] { sqlite3changeset_finalize(change); });
  std::vector<RowChange> changes;
  std::map<std::string, RowReader> readers;
  while ((code = sqlite3changeset_next(change)) == SQLITE_ROW) {
    const char* table = nullptr;
    int columns = 0;
    int operation = 0;
    unsigned char* key_columns = nullptr;
    sqlite3changeset_op(change, &table, &columns, &operation, nullptr);
    sqlite3changeset_pk(change, &key_columns, &columns);
    const std::vector<unsigned char> in_key(key_columns, key_columns + columns);
    auto key = key_of(change, operation, in_key);
    if (!key.ok()) return key.status();
    RowChange& one = changes.emplace_back(RowChange{table, *std::move(key), std::nullopt});
    if (operation == SQLITE_DELETE) continue;
    auto reader = readers.find(one.table);
    if (reader == readers.end()) {
      auto prepared = RowReader::prepare(db_, one.table, in_key);
      if (!prepared.ok()) return prepared.status();
      reader = readers.emplace(one.table, *std::move(prepared)).first;
    }
    auto row = reader->second.read(one.key);
    if (!row.ok()) return row.status();
    one.row = *std::move(row);
  }
  if (code != SQLITE_DONE) return db_.error(code, "collecting changes");
  return changes;
}

}  // namespace muster::coordinator
