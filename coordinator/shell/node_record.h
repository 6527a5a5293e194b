// What is known against a node, as stored: one JSON object, so that state can be looked at with sqlite3 and read by later versions.
// Unknown members are ignored; missing ones have their default.
#pragma once

#include <string>
#include <string_view>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "coordinator/core/fleet/exclusions.h"
#include "coordinator/shell/sqlite_database.h"
#include "coordinator/shell/storage.h"

namespace muster::coordinator {

// Everything but NodeRecord::until, which is volatile.
std::string node_to_record(const NodeRecord& node);

// InvalidArgument says what is wrong with the record.
absl::StatusOr<NodeRecord> node_from_record(std::string_view record);

// SqliteStorage's table of them, of version 3 of its schema.
absl::Status create_nodes_table(SqliteDatabase& db);
// A record that cannot be read is left out, with a warning: a node without one is a sound node.
absl::Status load_nodes(SqliteDatabase& db, DurableState& state);
absl::Status write_nodes(SqliteDatabase& db, const StorageBatch& batch);

}  // namespace muster::coordinator
