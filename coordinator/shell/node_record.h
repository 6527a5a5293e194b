// A node's record as stored: one JSON object, readable with sqlite3 and by later versions. Unknown
// members are ignored; missing ones take their default.
#pragma once

#include <string>
#include <string_view>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "coordinator/core/fleet/exclusions.h"
#include "coordinator/shell/sqlite_database.h"
#include "coordinator/shell/storage.h"

namespace muster::coordinator {

// Serialises everything except NodeRecord::until, which is volatile.
std::string node_to_record(const NodeRecord& node);

// Returns InvalidArgument with what is wrong with the record.
absl::StatusOr<NodeRecord> node_from_record(std::string_view record);

// Creates SqliteStorage's table of nodes (schema version 3).
absl::Status create_nodes_table(SqliteDatabase& db);
// Skips an unreadable record with a warning: a node without a record counts as healthy.
absl::Status load_nodes(SqliteDatabase& db, DurableState& state);
absl::Status write_nodes(SqliteDatabase& db, const StorageBatch& batch);

}  // namespace muster::coordinator
