// The stored form of a node's record: one JSON object, which sqlite3 and later versions can read.
// Unknown members are ignored; missing members have their default.
#pragma once

#include <string>
#include <string_view>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "coordinator/core/fleet/exclusions.h"
#include "coordinator/shell/storage/sqlite_database.h"
#include "coordinator/shell/storage/storage.h"

namespace muster::coordinator {

// Serialises everything except NodeRecord::until, which is volatile.
std::string node_to_record(const NodeRecord& node);

// Returns InvalidArgument, with the reason, if the record is not valid.
absl::StatusOr<NodeRecord> node_from_record(std::string_view record);

// The statement that creates the table (schema version 3).
inline constexpr char kNodesTable[] =
    "CREATE TABLE nodes(name TEXT PRIMARY KEY, record TEXT NOT NULL) WITHOUT ROWID;";

// Loads the records of nodes. Skips an unreadable record with a warning, because a node without a
// record counts as sound.
absl::Status load_nodes(SqliteDatabase& db, DurableState& state);
absl::Status write_nodes(SqliteDatabase& db, const StorageBatch& batch);

}  // namespace muster::coordinator
