// The stored usage of users and teams: a row for each.
#pragma once

#include <absl/status/status.h>

#include "coordinator/shell/storage/sqlite_database.h"
#include "coordinator/shell/storage/storage.h"

namespace muster::coordinator {

// Creates the table (schema version 7).
absl::Status create_usage_table(SqliteDatabase& db);
absl::Status load_usages(SqliteDatabase& db, DurableState& state);
absl::Status write_usages(SqliteDatabase& db, const StorageBatch& batch);

}  // namespace muster::coordinator
