#include "coordinator/shell/storage/ended_attempts.h"

#include <utility>

#include <spdlog/spdlog.h>

#include "coordinator/shell/messages/attempt_messages.h"

namespace muster::coordinator {

absl::Status write_attempts(SqliteDatabase& db, const std::vector<AttemptRecord>& attempts) {
  if (attempts.empty()) return absl::OkStatus();
  auto put = db.prepare("INSERT OR REPLACE INTO attempts(job, attempt, record) VALUES(?1, ?2, ?3)");
  if (!put.ok()) return put.status();
  auto remove = db.prepare("DELETE FROM attempts WHERE job=?1 AND attempt<=?2");
  if (!remove.ok()) return remove.status();
  for (const AttemptRecord& attempt : attempts) {
    const std::string record = attempt_to_proto(attempt).SerializeAsString();
    const uint32_t number = attempt.attempt.value();
    absl::Status status = put->bind(1, attempt.job.value());
    if (status.ok()) status = put->bind(2, number);
    if (status.ok()) status = put->bind_blob(3, record);
    if (status.ok()) status = put->run("storing an attempt");
    if (status.ok() && number > kAttemptsKeptMax) {
      status = remove->bind(1, attempt.job.value());
      if (status.ok()) status = remove->bind(2, number - kAttemptsKeptMax);
      if (status.ok()) status = remove->run("storing an attempt");
    }
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<v1::JobAttempt>> read_attempts(SqliteDatabase& db, JobId job,
                                                          Attempt before, size_t count_max) {
  auto rows = db.prepare(
      "SELECT attempt, record FROM attempts WHERE job=?1 AND attempt<?2 ORDER BY attempt DESC");
  if (!rows.ok()) return rows.status();
  absl::Status status = rows->bind(1, job.value());
  if (status.ok()) status = rows->bind(2, before.value());
  if (!status.ok()) return status;
  std::vector<v1::JobAttempt> attempts;
  while (attempts.size() < count_max) {
    const absl::StatusOr<bool> row = rows->next_row();
    if (!row.ok()) return row.status();
    if (!*row) break;
    v1::JobAttempt attempt;
    const std::string_view bytes = rows->text(1);
    if (attempt.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
      attempts.push_back(std::move(attempt));
    } else {
      spdlog::warn(
          "state file {}: the record of attempt {} of job {} cannot be read, and is left out",
          db.path(), rows->number(0), job.value());
    }
  }
  return attempts;
}

}  // namespace muster::coordinator
