// The rows of any table of a database as values, and the rows that a transaction changes, for a
// copy of the state elsewhere.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <absl/functional/function_ref.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "coordinator/shell/storage/sqlite_database.h"

struct sqlite3_session;

namespace muster::coordinator {

struct SqliteTable {
  std::string name;
  size_t columns = 0;
  std::vector<size_t> key;  // the columns of the primary key, in the order of the table
};

// Returns the tables with their primary keys, ordered by name. Returns Internal for a table without
// an explicit primary key, because its rows have no name that a copy could use.
absl::StatusOr<std::vector<SqliteTable>> tables_of(SqliteDatabase& db);
// Returns the statements that create the tables and indexes, in an order in which they can run.
absl::StatusOr<std::vector<std::string>> schema_of(SqliteDatabase& db);

// Calls `use` with each row of the table, in the order of its primary key. Stops at an error and
// returns it.
absl::Status for_each_row(SqliteDatabase& db, const SqliteTable& table,
                          absl::FunctionRef<absl::Status(const SqliteRow& row)> use);
// Inserts rows, each with a value for each column.
class RowInserter {
 public:
  static absl::StatusOr<RowInserter> prepare(SqliteDatabase& db, const SqliteTable& table);
  absl::Status insert(const SqliteRow& row);

 private:
  explicit RowInserter(SqliteDatabase::Statement put) : put_(std::move(put)) {}

  SqliteDatabase::Statement put_;
};

// A row that a transaction has inserted, updated or deleted.
struct RowChange {
  std::string table;
  SqliteRow key;                 // the values of the primary key
  std::optional<SqliteRow> row;  // all values; nullopt: deleted
};

// Records the changes of one transaction, of all tables.
class ChangeRecorder {
 public:
  // Begins to record. Requires that `db` outlives the recorder.
  static absl::StatusOr<ChangeRecorder> start(SqliteDatabase& db);
  // Returns the changed rows as they are now, in the order of the tables' first changes. A row that
  // is as it was when the recorder started is not among them.
  absl::StatusOr<std::vector<RowChange>> changes();

 private:
  struct Delete {
    void operator()(sqlite3_session* session) const;
  };
  ChangeRecorder(SqliteDatabase& db, sqlite3_session* session) : db_(db), session_(session) {}

  SqliteDatabase& db_;
  std::unique_ptr<sqlite3_session, Delete> session_;
};

// Receives the changes of each transaction before it commits.
class ChangeSink {
 public:
  virtual ~ChangeSink() = default;

  // Stores the changes elsewhere. The transaction commits if this returns OK, and is rolled back
  // otherwise. After ResourceExhausted the same changes can come again.
  virtual absl::Status store(const std::vector<RowChange>& changes) = 0;
  // Removes replaced and deleted values, which contain secrets of ended jobs. Best effort.
  virtual void forget_history() = 0;
};

}  // namespace muster::coordinator
