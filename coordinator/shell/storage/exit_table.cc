#include "coordinator/shell/storage/exit_table.h"

#include <iterator>
#include <string>
#include <utility>

#include "coordinator/shell/storage/job_record.h"

namespace muster::coordinator {

absl::Status load_exits(SqliteDatabase& db, Job& job) {
  auto rows = db.prepare(
      "SELECT position, record FROM exits WHERE job=?1 AND attempt=?2 ORDER BY position");
  if (!rows.ok()) return rows.status();
  absl::Status status = rows->bind(1, job.id.value());
  if (status.ok()) status = rows->bind(2, job.attempt.value());
  if (!status.ok()) return status;
  absl::StatusOr<bool> row;
  while ((row = rows->next_row()).ok() && *row) {
    if (rows->number(0) < std::ssize(job.exits)) continue;
    auto exit = exit_from_record(rows->text(1));
    if (!exit.ok()) return exit.status();
    job.exits.push_back(*std::move(exit));
  }
  return row.status();
}

absl::Status write_exits_of(SqliteDatabase& db, const Job& job) {
  auto remove = db.prepare("DELETE FROM exits WHERE job=?1 AND attempt<?2");
  if (!remove.ok()) return remove.status();
  absl::Status status = remove->bind(1, job.id.value());
  if (status.ok()) status = remove->bind(2, job.attempt.value() + (job.exits.empty() ? 1 : 0));
  if (status.ok()) status = remove->run("storing a job");
  if (!status.ok() || job.exits.empty()) return status;
  auto count =
      db.prepare("SELECT position FROM exits WHERE job=?1 AND attempt=?2 ORDER BY position");
  if (!count.ok()) return count.status();
  status = count->bind(1, job.id.value());
  if (status.ok()) status = count->bind(2, job.attempt.value());
  std::vector<StoredExit> missing;
  int64_t stored = 0;
  absl::StatusOr<bool> row = status.ok() ? count->next_row() : status;
  for (; row.ok() && *row && count->number(0) == stored; row = count->next_row()) ++stored;
  if (!row.ok()) return row.status();
  for (auto i = static_cast<size_t>(stored); i < job.exits.size(); ++i)
    missing.push_back({job.id, job.attempt, i, job.exits[i]});
  return write_exits(db, missing);
}

absl::Status write_exits(SqliteDatabase& db, const std::vector<StoredExit>& exits) {
  if (exits.empty()) return absl::OkStatus();
  auto put = db.prepare(
      "INSERT OR REPLACE INTO exits(job, attempt, position, record) VALUES(?1, ?2, ?3, ?4)");
  if (!put.ok()) return put.status();
  for (const StoredExit& exit : exits) {
    const std::string record = exit_to_record(exit.exit);
    absl::Status status = put->bind(1, exit.job.value());
    if (status.ok()) status = put->bind(2, exit.attempt.value());
    if (status.ok()) status = put->bind(3, exit.position);
    if (status.ok()) status = put->bind(4, record);
    if (status.ok()) status = put->run("storing an exit");
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace muster::coordinator
