// The numbers of the state: its store, its epoch and its newest job.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/job/ids.h"
#include "coordinator/shell/storage/sqlite_database.h"

namespace muster::coordinator {

// Draws the store's id, if the state has none: it is new, an earlier version wrote it, or it is a
// backup.
absl::Status name_store(SqliteDatabase& db);
absl::StatusOr<StoreId> store_of(SqliteDatabase& db);

// Raises the epoch, which is 0 at first.
absl::Status raise_epoch(SqliteDatabase& db);
absl::StatusOr<Epoch> epoch_of(SqliteDatabase& db);

// Returns 0 if there was no job.
absl::StatusOr<JobId> last_job_of(SqliteDatabase& db);

}  // namespace muster::coordinator
