// The stored text of the queue policy: a table with at most one row.
#pragma once

#include <absl/status/status.h>

#include "coordinator/shell/storage/sqlite_database.h"
#include "coordinator/shell/storage/storage.h"

namespace muster::coordinator {

// Creates the table (schema version 8).
absl::Status create_policy_table(SqliteDatabase& db);
absl::Status load_policy(SqliteDatabase& db, DurableState& state);
absl::Status write_policy(SqliteDatabase& db, const StorageBatch& batch);

}  // namespace muster::coordinator
