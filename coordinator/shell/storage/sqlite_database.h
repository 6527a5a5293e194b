// SQLite with absl statuses: one open database file and its statements. Errors state what the user
// can do. Used by one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

struct sqlite3;
struct sqlite3_stmt;

namespace muster::coordinator {

struct SqliteBlob {
  std::string bytes;

  bool operator==(const SqliteBlob&) const = default;
};
// A value of a column: null, an integer, a real number, a text or bytes.
using SqliteValue = std::variant<std::monostate, int64_t, double, std::string, SqliteBlob>;
using SqliteRow = std::vector<SqliteValue>;

class SqliteDatabase {
 public:
  // One prepared statement. Requires that the database outlives the statement, and bound texts
  // outlive its run.
  class Statement {
   public:
    absl::Status bind(int parameter, std::string_view text);
    absl::Status bind(int parameter, uint64_t number);
    absl::Status bind_blob(int parameter, std::string_view bytes);
    absl::Status bind_value(int parameter, const SqliteValue& value);
    // Advances to the next row. Returns false after the last row.
    absl::StatusOr<bool> next_row();
    // Runs a statement that returns no rows, and resets it for the next run. `what` describes the
    // statement in errors.
    absl::Status run(const char* what);
    // Ends the run, so that parameters can be bound again.
    void reset();

    int columns() const;
    // Return a column of the current row. A text is valid until the next row.
    int64_t number(int column) const;
    std::string_view text(int column) const;
    SqliteValue value(int column) const;

   private:
    friend class SqliteDatabase;
    struct Finalize {
      void operator()(sqlite3_stmt* statement) const;
    };
    Statement(const SqliteDatabase& database, sqlite3_stmt* statement)
        : database_(&database), statement_(statement) {}
    absl::Status bound(int code, const char* what) const;

    const SqliteDatabase* database_;
    std::unique_ptr<sqlite3_stmt, Finalize> statement_;
  };

  // Opens the database, and creates the file if it does not exist.
  static absl::StatusOr<SqliteDatabase> open(const std::string& path);

  const std::string& path() const { return path_; }
  // For SQLite's interfaces that this class does not have.
  sqlite3* handle() const { return db_.get(); }
  absl::Status run(const char* sql);
  absl::StatusOr<Statement> prepare(const char* sql);
  // Return the first column of the single row.
  absl::StatusOr<int64_t> one_number(const char* sql);
  absl::StatusOr<std::string> one_text(const char* sql);
  void set_busy_timeout(int milliseconds);
  // Replaces the content of `target` by this database's, as of one moment. Other connections may
  // write meanwhile. Returns Cancelled, and leaves `target` incomplete, once `stop` is requested.
  absl::Status copy_to(SqliteDatabase& target, const std::stop_token& stop);
  // From now on statements return Cancelled soon after `stop` was requested.
  void stop_on(std::stop_token stop);
  // Truncates the write-ahead log. Best effort: a concurrent reader of the file prevents it.
  void empty_log();
  absl::Status error(int code, const char* what) const;

 private:
  struct Close {
    void operator()(sqlite3* db) const;
  };
  SqliteDatabase(sqlite3* db, std::string path) : db_(db), path_(std::move(path)) {}

  std::unique_ptr<std::stop_token> stop_;  // at a fixed address, which SQLite has
  std::unique_ptr<sqlite3, Close> db_;
  std::string path_;
};

}  // namespace muster::coordinator
