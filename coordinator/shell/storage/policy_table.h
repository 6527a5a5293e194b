// The stored text of the queue policy: a table with at most one row.
#pragma once

#include <absl/status/status.h>

#include "coordinator/shell/storage/sqlite_database.h"
#include "coordinator/shell/storage/storage.h"

namespace muster::coordinator {

// The statement that creates the table (schema version 8).
inline constexpr char kPolicyTable[] =
    "CREATE TABLE queue_policy(id INTEGER PRIMARY KEY CHECK(id=1), text TEXT NOT NULL);";

absl::Status load_policy(SqliteDatabase& db, DurableState& state);
absl::Status write_policy(SqliteDatabase& db, const StorageBatch& batch);

}  // namespace muster::coordinator
