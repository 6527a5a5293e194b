// The stored results of deep checks: a row for each node, with a JSON list. Unknown members are
// ignored; missing members have their default.
#pragma once

#include <string>
#include <string_view>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "coordinator/core/sweep/check_history.h"
#include "coordinator/shell/storage/sqlite_database.h"
#include "coordinator/shell/storage/storage.h"

namespace muster::coordinator {

std::string checks_to_record(const DeepChecks& checks);
// Returns InvalidArgument, with the reason, if the record is not valid.
absl::StatusOr<DeepChecks> checks_from_record(std::string_view record);

// The statement that creates the table (schema version 6).
inline constexpr char kChecksTable[] =
    "CREATE TABLE deep_checks(name TEXT PRIMARY KEY, record TEXT NOT NULL) WITHOUT ROWID;";

// Loads the results. Skips an unreadable record with a warning.
absl::Status load_checks(SqliteDatabase& db, DurableState& state);
absl::Status write_checks(SqliteDatabase& db, const StorageBatch& batch);

}  // namespace muster::coordinator
