// The embedded storage: one SQLite file, write-ahead log, synced at each commit.
//
//   jobs(id INTEGER PRIMARY KEY, record TEXT)      record: see job_record.h
//   exits(job INTEGER, attempt INTEGER, position INTEGER, record TEXT)
//                                                  record: see job_record.h
//   request_ids(request_id TEXT PRIMARY KEY, job INTEGER)
//   meta(key TEXT PRIMARY KEY, value INTEGER)      epoch, store_id, last_job_id, left_at_epoch
//   incidents(id INTEGER PRIMARY KEY, job INTEGER, summary BLOB, record BLOB)
//                                                  muster.v1.Incident, shortened and complete
//   nodes(name TEXT PRIMARY KEY, record TEXT)      record: see node_record.h
//   PRAGMA user_version                            the schema's version
#pragma once

#include <memory>
#include <string>

#include <absl/status/statusor.h>

#include "coordinator/shell/storage/sqlite_rows.h"
#include "coordinator/shell/storage/storage.h"

namespace muster::coordinator {

constexpr int kSchemaVersion = 8;

// Opens or creates `path`. If `sink` is not null, each transaction's changes go there before it
// commits, except those of this call, and the file is not synced: after a crash of the machine it
// must be built again. Errors name the file: DataLoss if it is corrupt or not a database,
// FailedPrecondition if a newer version wrote it, Unavailable if it is busy, ResourceExhausted if
// the disk is full, PermissionDenied if it cannot be written.
absl::StatusOr<std::unique_ptr<Storage>> open_sqlite_storage(const std::string& path,
                                                             std::unique_ptr<ChangeSink> sink = {});

}  // namespace muster::coordinator
