#include "coordinator/shell/storage/policy_table.h"

#include <string>

namespace muster::coordinator {

absl::Status load_policy(SqliteDatabase& db, DurableState& state) {
  auto rows = db.prepare("SELECT text FROM queue_policy");
  if (!rows.ok()) return rows.status();
  const auto row = rows->next_row();
  if (row.ok() && *row) state.queue_policy = std::string(rows->text(0));
  return row.status();
}

absl::Status write_policy(SqliteDatabase& db, const StorageBatch& batch) {
  if (!batch.queue_policy) return absl::OkStatus();
  auto put = db.prepare("INSERT OR REPLACE INTO queue_policy(id, text) VALUES(1, ?1)");
  if (!put.ok()) return put.status();
  absl::Status status = put->bind(1, *batch.queue_policy);
  if (status.ok()) status = put->run("storing the queue policy");
  return status;
}

}  // namespace muster::coordinator
