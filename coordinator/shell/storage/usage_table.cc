#include "coordinator/shell/storage/usage_table.h"

#include <cmath>
#include <string>

namespace muster::coordinator {

absl::Status load_usages(SqliteDatabase& db, DurableState& state) {
  auto rows = db.prepare("SELECT is_team, name, rank_ms, unix_ns FROM usages");
  if (!rows.ok()) return rows.status();
  absl::StatusOr<bool> row;
  while ((row = rows->next_row()).ok() && *row) {
    state.usages.push_back({{rows->number(0) != 0, std::string(rows->text(1))},
                            static_cast<double>(rows->number(2)) / 1e3,
                            rows->number(3)});
  }
  return row.status();
}

absl::Status write_usages(SqliteDatabase& db, const StorageBatch& batch) {
  if (batch.usages.empty()) return absl::OkStatus();
  auto put = db.prepare(
      "INSERT OR REPLACE INTO usages(is_team, name, rank_ms, unix_ns) VALUES(?1, ?2, ?3, ?4)");
  auto drop = db.prepare("DELETE FROM usages WHERE is_team=?1 AND name=?2");
  for (const auto* statement : {&put, &drop}) {
    if (!statement->ok()) return statement->status();
  }
  for (const auto& [party, usage] : batch.usages) {
    const bool is_kept = usage.rank_seconds > 0;
    auto& statement = is_kept ? put : drop;
    absl::Status status = statement->bind(1, uint64_t{party.is_team});
    if (status.ok()) status = statement->bind(2, party.name);
    if (status.ok() && is_kept)
      status = statement->bind(3, static_cast<uint64_t>(std::llround(usage.rank_seconds * 1e3)));
    if (status.ok() && is_kept) status = statement->bind(4, static_cast<uint64_t>(usage.unix_ns));
    if (status.ok()) status = statement->run("storing the usage of a user or team");
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace muster::coordinator
