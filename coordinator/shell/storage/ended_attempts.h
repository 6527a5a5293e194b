// The table of ended attempts in the coordinator's state, for the history of jobs.
#pragma once

#include <cstddef>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/job/ids.h"
#include "coordinator/shell/storage/sqlite_database.h"
#include "coordinator/shell/storage/storage_batch.h"
#include "muster/v1/muster.pb.h"

namespace muster::coordinator {

// The statement that creates the table (schema version 5).
inline constexpr char kAttemptsTable[] =
    "CREATE TABLE attempts(job INTEGER NOT NULL, attempt INTEGER NOT NULL, record BLOB NOT NULL,"
    " PRIMARY KEY(job, attempt)) WITHOUT ROWID;";

// Writes these attempts, and deletes the attempts of their jobs beyond the newest kAttemptsKeptMax.
absl::Status write_attempts(SqliteDatabase& db, const std::vector<AttemptRecord>& attempts);

// Returns at most `count_max` ended attempts of the job before the attempt `before`, newest first.
// Skips unreadable records with a warning.
absl::StatusOr<std::vector<v1::JobAttempt>> read_attempts(SqliteDatabase& db, JobId job,
                                                          Attempt before, size_t count_max);

}  // namespace muster::coordinator
