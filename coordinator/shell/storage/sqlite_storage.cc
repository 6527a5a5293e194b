#include "coordinator/shell/storage/sqlite_storage.h"

#include <algorithm>
#include <array>
#include <utility>

#include <absl/functional/function_ref.h>
#include <absl/strings/str_cat.h>
#include <spdlog/spdlog.h>

#include "common/text/absl_view.h"
#include "coordinator/shell/messages/incident_messages.h"
#include "coordinator/shell/storage/check_table.h"
#include "coordinator/shell/storage/ended_attempts.h"
#include "coordinator/shell/storage/exit_table.h"
#include "coordinator/shell/storage/job_record.h"
#include "coordinator/shell/storage/meta_table.h"
#include "coordinator/shell/storage/node_record.h"
#include "coordinator/shell/storage/policy_table.h"
#include "coordinator/shell/storage/sqlite_database.h"
#include "coordinator/shell/storage/usage_table.h"

namespace muster::coordinator {
namespace {

using Statement = SqliteDatabase::Statement;

// Returns whether the incident's job is still recovering.
bool is_recovering(const v1::Incident& summary) {
  return summary.has_recovery() && !summary.recovery().over();
}

// The time to wait for the file's lock, which an operator with sqlite3 may hold for a moment.
constexpr int kBusyTimeoutMs = 5'000;

// The statements that add the tables of each version to those of the version before it.
constexpr std::array<const char*, kSchemaVersion> kTablesOfVersions = {
    "CREATE TABLE jobs(id INTEGER PRIMARY KEY, record TEXT NOT NULL);"
    "CREATE TABLE request_ids(request_id TEXT PRIMARY KEY, job INTEGER NOT NULL) WITHOUT ROWID;"
    "CREATE INDEX request_ids_by_job ON request_ids(job);"
    "CREATE TABLE meta(key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;",
    "CREATE TABLE incidents(id INTEGER PRIMARY KEY, job INTEGER NOT NULL, summary BLOB NOT NULL,"
    " record BLOB NOT NULL);"
    "CREATE INDEX incidents_by_job ON incidents(job);",
    kNodesTable,
    kExitsTable,
    kAttemptsTable,
    kChecksTable,
    kUsageTable,
    kPolicyTable};

class SqliteStorage final : public Storage {
 public:
  SqliteStorage(SqliteDatabase db, std::unique_ptr<ChangeSink> sink)
      : db_(std::move(db)), sink_(std::move(sink)) {}

  absl::Status set_up();
  absl::StatusOr<DurableState> load() override;
  absl::Status commit(const StorageBatch& batch) override;
  absl::StatusOr<Epoch> begin_epoch() override;
  absl::StatusOr<v1::Incident> incident(IncidentId id) override;
  absl::StatusOr<std::vector<v1::Incident>> incidents(JobId job, size_t count_max) override;
  absl::StatusOr<std::vector<v1::JobAttempt>> attempts(JobId job, Attempt before,
                                                       size_t count_max) override {
    return read_attempts(db_, job, before, count_max);
  }

 private:
  absl::Status enable_wal();
  absl::Status check_pages();
  absl::Status raise_schema(int64_t version);
  absl::Status load_jobs(DurableState& state);
  absl::Status load_incidents(DurableState& state);
  absl::StatusOr<Incident> open_incident(IncidentId id, absl::Status summary);
  absl::Status copy_error(absl::Status status) const;
  absl::Status transact(absl::FunctionRef<absl::Status()> change);
  absl::Status write_recorded(absl::FunctionRef<absl::Status()> change);
  absl::Status write(const StorageBatch& batch);
  absl::Status write_jobs(const StorageBatch& batch);
  absl::Status write_incidents(const StorageBatch& batch);
  absl::Status put_number(const char* sql, uint64_t number, const char* what);
  absl::StatusOr<v1::Incident> read_incident(const Statement& row) const;
  absl::Status unreadable(std::string_view record, int64_t id, std::string_view why) const;
  void empty_log();

  SqliteDatabase db_;
  const std::unique_ptr<ChangeSink> sink_;
};

// Enables the write-ahead log. If it is not available, SQLite returns the mode in force instead of
// an error.
absl::Status SqliteStorage::enable_wal() {
  const auto mode = db_.one_text("PRAGMA journal_mode=WAL");
  if (!mode.ok()) return mode.status();
  if (*mode == "wal") return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("state file ", db_.path(), " has the journal mode ", *mode,
                   " and cannot have wal: keep the state on a local disk"));
}

absl::Status SqliteStorage::check_pages() {
  const auto found = db_.one_text("PRAGMA quick_check(1)");
  if (!found.ok()) return found.status();
  if (*found == "ok") return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat("state file ", db_.path(), " is damaged: ", *found,
                   "; restore it from a copy, or move it away to begin with an empty one"));
}

absl::Status SqliteStorage::set_up() {
  db_.set_busy_timeout(kBusyTimeoutMs);
  absl::Status set = enable_wal();
  // Makes SQLite overwrite replaced and deleted data, so that no copy of an ended job's secrets
  // remains.
  if (set.ok()) set = db_.run("PRAGMA cache_size=-1024; PRAGMA secure_delete=ON;");
  if (set.ok()) set = db_.run(sink_ ? "PRAGMA synchronous=OFF" : "PRAGMA synchronous=FULL");
  if (!set.ok()) return set;
  if (absl::Status status = check_pages(); !status.ok()) return status;
  const auto version = db_.one_number("PRAGMA user_version");
  if (!version.ok()) return version.status();
  if (*version > kSchemaVersion) {
    return absl::FailedPreconditionError(absl::StrCat(
        "state file ", db_.path(), " has schema version ", *version, " and this program supports ",
        kSchemaVersion, ": a newer version of Muster wrote it"));
  }
  if (absl::Status status = raise_schema(*version); !status.ok()) return status;
  empty_log();  // an earlier run may have ended without doing so
  return name_store(db_);
}

absl::Status SqliteStorage::raise_schema(int64_t version) {
  absl::Status status;
  for (auto next = static_cast<size_t>(std::max<int64_t>(version, 0));
       status.ok() && next < kTablesOfVersions.size(); ++next) {
    status = db_.run(absl::StrCat("BEGIN IMMEDIATE;", kTablesOfVersions[next],
                                  "PRAGMA user_version=", next + 1, ";COMMIT;")
                         .c_str());
  }
  return status;
}

absl::Status SqliteStorage::unreadable(std::string_view record, int64_t id,
                                       std::string_view why) const {
  return absl::DataLossError(absl::StrCat("state file ", db_.path(), ": the record of ", av(record),
                                          " ", id, " cannot be read: ", av(why)));
}

absl::Status SqliteStorage::load_jobs(DurableState& state) {
  auto jobs = db_.prepare("SELECT id, record FROM jobs ORDER BY id");
  if (!jobs.ok()) return jobs.status();
  absl::StatusOr<bool> row;
  while ((row = jobs->next_row()).ok() && *row) {
    auto job = job_from_record(jobs->text(1));
    absl::Status status = job.status();
    if (status.ok()) status = load_exits(db_, *job);
    if (status.ok()) status = check_consistency(*job);
    if (!status.ok()) return unreadable("job", jobs->number(0), sv(status.message()));
    state.jobs.push_back(*std::move(job));
  }
  if (!row.ok()) return row.status();
  auto requests = db_.prepare("SELECT request_id, job FROM request_ids");
  if (!requests.ok()) return requests.status();
  while ((row = requests->next_row()).ok() && *row) {
    state.request_ids.emplace(requests->text(0), JobId(static_cast<uint64_t>(requests->number(1))));
  }
  return row.status();
}

// Loads the incidents that are not finished. Leaves an unreadable record in place, under its
// number, until it is the oldest, because jobs do not depend on it.
absl::Status SqliteStorage::load_incidents(DurableState& state) {
  auto rows = db_.prepare("SELECT id, summary FROM incidents ORDER BY id");
  if (!rows.ok()) return rows.status();
  absl::StatusOr<bool> row;
  while ((row = rows->next_row()).ok() && *row) {
    const IncidentId id(static_cast<uint64_t>(rows->number(0)));
    state.incidents.push_back(id);
    const auto summary = read_incident(*rows);
    if (summary.ok() && !summary->open() && !is_recovering(*summary)) continue;
    auto open = open_incident(id, summary.status());
    if (open.ok()) {
      state.open_incidents.push_back(*std::move(open));
    } else {
      spdlog::warn("{}; it is left out", std::string(open.status().message()));
    }
  }
  return row.status();
}

// Loads the complete incident, because parts that are missing here would be lost when the incident
// is stored again.
absl::StatusOr<Incident> SqliteStorage::open_incident(IncidentId id, absl::Status summary) {
  if (!summary.ok()) return summary;
  const auto record = incident(id);
  if (!record.ok()) return record.status();
  auto open = incident_from_proto(*record);
  if (open.ok()) return open;
  return unreadable("incident", static_cast<int64_t>(id.value()), sv(open.status().message()));
}

absl::StatusOr<DurableState> SqliteStorage::load() {
  DurableState state;
  const auto store = store_of(db_);
  if (!store.ok()) return store.status();
  state.store = *store;
  if (absl::Status status = load_jobs(state); !status.ok()) return status;
  if (absl::Status status = load_incidents(state); !status.ok()) return status;
  for (const auto load : {load_nodes, load_checks, load_usages, load_policy}) {
    if (absl::Status status = load(db_, state); !status.ok()) return status;
  }
  const auto last = last_job_of(db_);
  if (!last.ok()) return last.status();
  state.last_job_id = *last;
  const auto left_at = left_at_of(db_);
  if (!left_at.ok()) return left_at.status();
  state.left_at = *left_at;
  return state;
}

// Reads a row of (id, message).
absl::StatusOr<v1::Incident> SqliteStorage::read_incident(const Statement& row) const {
  v1::Incident incident;
  const std::string_view bytes = row.text(1);
  if (incident.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return incident;
  return unreadable("incident", row.number(0), "it is no message");
}

absl::StatusOr<v1::Incident> SqliteStorage::incident(IncidentId id) {
  auto rows = db_.prepare("SELECT id, record FROM incidents WHERE id=?1");
  if (!rows.ok()) return rows.status();
  if (absl::Status status = rows->bind(1, id.value()); !status.ok()) return status;
  const auto row = rows->next_row();
  if (!row.ok()) return row.status();
  if (*row) return read_incident(*rows);
  return absl::NotFoundError(absl::StrCat("there is no incident ", id.value()));
}

absl::StatusOr<std::vector<v1::Incident>> SqliteStorage::incidents(JobId job, size_t count_max) {
  auto rows =
      db_.prepare("SELECT id, summary FROM incidents WHERE ?1=0 OR job=?1 ORDER BY id DESC");
  if (!rows.ok()) return rows.status();
  if (absl::Status status = rows->bind(1, job.value()); !status.ok()) return status;
  std::vector<v1::Incident> incidents;
  while (incidents.size() < count_max) {
    const absl::StatusOr<bool> row = rows->next_row();
    if (!row.ok()) return row.status();
    if (!*row) break;
    // A list skips unreadable incidents; a request for a single incident returns the error.
    if (auto incident = read_incident(*rows); incident.ok())
      incidents.push_back(*std::move(incident));
  }
  return incidents;
}

absl::Status SqliteStorage::write_jobs(const StorageBatch& batch) {
  auto put_job = db_.prepare("INSERT OR REPLACE INTO jobs(id, record) VALUES(?1, ?2)");
  auto put_request =
      db_.prepare("INSERT OR REPLACE INTO request_ids(request_id, job) VALUES(?1, ?2)");
  for (const auto* statement : {&put_job, &put_request}) {
    if (!statement->ok()) return statement->status();
  }
  for (const auto& [id, job] : batch.jobs) {
    const std::string record = job_to_record(job);
    absl::Status status = put_job->bind(1, id.value());
    if (status.ok()) status = put_job->bind(2, record);
    if (status.ok()) status = put_job->run("storing a job");
    if (status.ok()) status = write_exits_of(db_, job);
    if (!status.ok()) return status;
  }
  if (absl::Status status = write_exits(db_, batch.exits); !status.ok()) return status;
  for (const auto& [request_id, job] : batch.request_ids) {
    absl::Status status = put_request->bind(1, request_id);
    if (status.ok()) status = put_request->bind(2, job.value());
    if (status.ok()) status = put_request->run("storing a request id");
    if (!status.ok()) return status;
  }
  if (batch.last_job_id == JobId(0)) return absl::OkStatus();
  return put_number("INSERT OR REPLACE INTO meta(key, value) VALUES('last_job_id', ?1)",
                    batch.last_job_id.value(), "storing the last job number");
}

absl::Status SqliteStorage::write_incidents(const StorageBatch& batch) {
  auto put = db_.prepare(
      "INSERT OR REPLACE INTO incidents(id, job, summary, record) VALUES(?1, ?2, ?3, ?4)");
  if (!put.ok()) return put.status();
  for (const auto& [id, incident] : batch.incidents) {
    const std::string summary = incident_summary_to_proto(incident).SerializeAsString();
    const std::string record = incident_to_proto(incident).SerializeAsString();
    absl::Status status = put->bind(1, id.value());
    if (status.ok()) status = put->bind(2, incident.job.value());
    if (status.ok()) status = put->bind_blob(3, summary);
    if (status.ok()) status = put->bind_blob(4, record);
    if (status.ok()) status = put->run("storing an incident");
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status SqliteStorage::put_number(const char* sql, uint64_t number, const char* what) {
  auto statement = db_.prepare(sql);
  if (!statement.ok()) return statement.status();
  absl::Status status = statement->bind(1, number);
  if (status.ok()) status = statement->run(what);
  return status;
}

absl::Status SqliteStorage::write(const StorageBatch& batch) {
  absl::Status status = write_jobs(batch);
  if (status.ok()) status = write_incidents(batch);
  if (status.ok()) status = write_nodes(db_, batch);
  if (status.ok()) status = write_checks(db_, batch);
  if (status.ok()) status = write_usages(db_, batch);
  if (status.ok()) status = write_policy(db_, batch);
  if (status.ok()) status = write_attempts(db_, batch.attempts);
  for (const JobId id : batch.forgotten) {
    for (const char* sql :
         {"DELETE FROM jobs WHERE id=?1", "DELETE FROM exits WHERE job=?1",
          "DELETE FROM attempts WHERE job=?1", "DELETE FROM request_ids WHERE job=?1"}) {
      if (status.ok()) status = put_number(sql, id.value(), "forgetting a job");
    }
  }
  for (const IncidentId id : batch.forgotten_incidents) {
    const char* sql = "DELETE FROM incidents WHERE id=?1";
    if (status.ok()) status = put_number(sql, id.value(), "forgetting an incident");
  }
  return status;
}

// Converts an error of the file. With a sink the file is only a copy, so this coordinator must end
// instead of waiting for space: another one may be able to work.
absl::Status SqliteStorage::copy_error(absl::Status status) const {
  if (status.ok() || sink_ == nullptr) return status;
  return absl::AbortedError(
      absl::StrCat("this coordinator no longer leads: it cannot write its copy of the state: ",
                   status.message()));
}

// Makes the change, and gives the changed rows to the sink.
absl::Status SqliteStorage::write_recorded(absl::FunctionRef<absl::Status()> change) {
  if (sink_ == nullptr) return change();
  auto recorder = ChangeRecorder::start(db_);
  if (!recorder.ok()) return copy_error(recorder.status());
  if (absl::Status status = change(); !status.ok()) return copy_error(std::move(status));
  const auto changes = recorder->changes();
  return changes.ok() ? sink_->store(*changes) : copy_error(changes.status());
}

absl::Status SqliteStorage::transact(absl::FunctionRef<absl::Status()> change) {
  absl::Status status = copy_error(db_.run("BEGIN IMMEDIATE"));
  if (!status.ok()) return status;
  status = write_recorded(change);
  if (status.ok()) status = copy_error(db_.run("COMMIT"));
  // Best effort: after some errors SQLite has already rolled back.
  if (!status.ok()) db_.run("ROLLBACK").IgnoreError();
  return status;
}

absl::Status SqliteStorage::commit(const StorageBatch& batch) {
  if (batch.empty()) return absl::OkStatus();
  absl::Status status = transact([&] { return write(batch); });
  if (status.ok() && ends_with_secrets(batch)) {
    empty_log();
    if (sink_ != nullptr) sink_->forget_history();
  }
  return status;
}

// Truncates the write-ahead log, which contains earlier records until it is overwritten. Does not
// wait for concurrent readers of the file.
void SqliteStorage::empty_log() {
  db_.set_busy_timeout(0);
  db_.empty_log();
  db_.set_busy_timeout(kBusyTimeoutMs);
}

absl::StatusOr<Epoch> SqliteStorage::begin_epoch() {
  if (absl::Status status = transact([&] { return raise_epoch(db_); }); !status.ok()) return status;
  return epoch_of(db_);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Storage>> open_sqlite_storage(const std::string& path,
                                                             std::unique_ptr<ChangeSink> sink) {
  auto db = SqliteDatabase::open(path);
  if (!db.ok()) return db.status();
  auto storage = std::make_unique<SqliteStorage>(*std::move(db), std::move(sink));
  if (absl::Status status = storage->set_up(); !status.ok()) return status;
  return storage;
}

}  // namespace muster::coordinator
