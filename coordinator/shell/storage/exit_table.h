// The table of exits in the coordinator's state. It has the exits of each job's current attempt, so
// that the job's record is not written again for each rank that ends.
#pragma once

#include <vector>

#include <absl/status/status.h>

#include "coordinator/core/records/job.h"
#include "coordinator/shell/storage/sqlite_database.h"
#include "coordinator/shell/storage/storage.h"

namespace muster::coordinator {

// The statement that creates the table (schema version 4). Records of version 3 contain the exits,
// which move to the table when their job is stored again.
inline constexpr char kExitsTable[] =
    "CREATE TABLE exits(job INTEGER NOT NULL, attempt INTEGER NOT NULL, position INTEGER NOT "
    "NULL,"
    " record TEXT NOT NULL, PRIMARY KEY(job, attempt, position)) WITHOUT ROWID;";

// Appends the exits in the table to job.exits, which already has those of a record of version 3.
absl::Status load_exits(SqliteDatabase& db, Job& job);

// Deletes the exits of the job's earlier attempts, and writes those of its current attempt that are
// not stored yet.
absl::Status write_exits_of(SqliteDatabase& db, const Job& job);
// Writes these exits.
absl::Status write_exits(SqliteDatabase& db, const std::vector<StoredExit>& exits);

}  // namespace muster::coordinator
