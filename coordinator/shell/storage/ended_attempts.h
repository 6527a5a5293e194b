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

// Adds the table, and raises the schema from version 4 to 5.
absl::Status create_attempts_table(SqliteDatabase& db);

// Writes these attempts, and deletes the attempts of their jobs beyond the newest kAttemptsKeptMax.
absl::Status write_attempts(SqliteDatabase& db, const std::vector<AttemptRecord>& attempts);

// Returns at most `count_max` ended attempts of the job before the attempt `before`, newest first.
// Skips unreadable records with a warning.
absl::StatusOr<std::vector<v1::JobAttempt>> read_attempts(SqliteDatabase& db, JobId job,
                                                          Attempt before, size_t count_max);

}  // namespace muster::coordinator
