// The stored usage of users and teams: a row for each.
#pragma once

#include <absl/status/status.h>

#include "coordinator/shell/storage/sqlite_database.h"
#include "coordinator/shell/storage/storage.h"

namespace muster::coordinator {

// The statement that creates the table (schema version 7).
inline constexpr char kUsageTable[] =
    "CREATE TABLE usages(is_team INTEGER NOT NULL, name TEXT NOT NULL,"
    " rank_ms INTEGER NOT NULL, unix_ns INTEGER NOT NULL, PRIMARY KEY(is_team, name))"
    " WITHOUT ROWID;";

absl::Status load_usages(SqliteDatabase& db, DurableState& state);
absl::Status write_usages(SqliteDatabase& db, const StorageBatch& batch);

}  // namespace muster::coordinator
