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

// Records that the state leaves etcd with its present epoch, which is returned.
absl::StatusOr<Epoch> mark_as_left(SqliteDatabase& db);
// Returns the epoch of the newest such mark; 0 if there is none.
absl::StatusOr<Epoch> left_at_of(SqliteDatabase& db);

// Returns 0 if there was no job.
absl::StatusOr<JobId> last_job_of(SqliteDatabase& db);

}  // namespace muster::coordinator
