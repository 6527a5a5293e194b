#include <gmock/gmock.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>
#include <sqlite3.h>

#include "coordinator/shell/messages/incident_messages.h"
#include "coordinator/shell/storage/job_record.h"
#include "coordinator/shell/storage/sqlite_storage.h"
#include "coordinator/shell/storage/state_lock.h"
#include "tests/unit/coordinator/shell/full_incident.h"
#include "tests/unit/coordinator/shell/full_job.h"
#include "tests/unit/coordinator/shell/shell_fixture.h"
#include "tests/unit/coordinator/shell/storage/storage_under_test.h"
#include "tests/unit/file_size_limit.h"

namespace muster::coordinator {
namespace {

using testing::HasSubstr;

class SqliteUnderTest final : public StorageUnderTest {
 public:
  explicit SqliteUnderTest(std::string path) : path_(std::move(path)) {}
  absl::StatusOr<std::unique_ptr<Storage>> open() override { return open_sqlite_storage(path_); }

 private:
  const std::string path_;
};

class StorageTest : public testing::Test {
 protected:
  TempFolder folder_;
  std::string path_ = folder_.path() + "/muster.db";
};

TEST_F(StorageTest, HasANameOfItsOwnForGood) {
  std::set<StoreId> names;
  for (const char* name : {"/a.db", "/b.db", "/a.db"}) {
    auto storage = open_sqlite_storage(folder_.path() + name);
    ASSERT_TRUE(storage.ok()) << storage.status();
    const auto state = (*storage)->load();
    ASSERT_TRUE(state.ok()) << state.status();
    names.insert(state->store);
  }
  EXPECT_EQ(names.size(), 2U);
}

// State of the version before incidents were stored.
TEST_F(StorageTest, AnOlderSchemaIsRaised) {
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(path_.c_str(), &db), SQLITE_OK);
  ASSERT_EQ(
      sqlite3_exec(db,
                   "PRAGMA journal_mode=WAL;"
                   "CREATE TABLE jobs(id INTEGER PRIMARY KEY, record TEXT NOT NULL);"
                   "CREATE TABLE request_ids(request_id TEXT PRIMARY KEY, job INTEGER NOT NULL) "
                   "WITHOUT ROWID;"
                   "CREATE INDEX request_ids_by_job ON request_ids(job);"
                   "CREATE TABLE meta(key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;"
                   "INSERT INTO meta VALUES('last_job_id', 9);"
                   "PRAGMA user_version=1;",
                   nullptr, nullptr, nullptr),
      SQLITE_OK);
  sqlite3_close(db);
  for (int start = 0; start < 2; ++start) {
    auto storage = open_sqlite_storage(path_);
    ASSERT_TRUE(storage.ok()) << storage.status();
    const auto state = (*storage)->load();
    ASSERT_TRUE(state.ok()) << state.status();
    EXPECT_EQ(state->last_job_id, JobId(9));
    EXPECT_EQ(state->incidents.size(), static_cast<size_t>(start));
    StorageBatch batch;
    batch.incidents = {{IncidentId(1), full_incident(1)}};
    EXPECT_TRUE((*storage)->commit(batch).ok());
  }
}

// A record of schema 3 contains the exits, and later ones are in the table.
TEST_F(StorageTest, ContinuesTheExitsOfAnOlderRecord) {
  Job job = full_job();
  job.exits = {job.exits[0], job.exits[1]};
  auto record = nlohmann::json::parse(job_to_record(job));
  record["exits"] = {nlohmann::json::parse(exit_to_record(job.exits[0]))};
  open_sqlite_storage(path_).value().reset();
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(path_.c_str(), &db), SQLITE_OK);
  sqlite3_stmt* insert = nullptr;
  ASSERT_EQ(sqlite3_prepare_v2(db, "INSERT INTO jobs VALUES(7, ?1)", -1, &insert, nullptr),
            SQLITE_OK);
  const std::string text = record.dump();
  sqlite3_bind_text(insert, 1, text.c_str(), -1, SQLITE_TRANSIENT);
  ASSERT_EQ(sqlite3_step(insert), SQLITE_DONE);
  sqlite3_finalize(insert);
  for (const char* sql : {"DROP TABLE exits; DROP TABLE attempts; DROP TABLE deep_checks",
                          "DROP TABLE usages; DROP TABLE queue_policy; PRAGMA user_version=3"})
    ASSERT_EQ(sqlite3_exec(db, sql, nullptr, nullptr, nullptr), SQLITE_OK);
  sqlite3_close(db);

  auto storage = open_sqlite_storage(path_);
  ASSERT_TRUE(storage.ok()) << storage.status();
  StorageBatch batch;
  batch.exits = {{job.id, job.attempt, 1, job.exits[1]}};
  ASSERT_TRUE((*storage)->commit(batch).ok());
  for (int round = 0; round < 2; ++round) {
    const auto state = (*storage)->load();
    ASSERT_TRUE(state.ok()) << state.status();
    EXPECT_EQ(state->jobs.at(0), job);
    ASSERT_TRUE((*storage)->commit({{{job.id, state->jobs.at(0)}}, {}, {}, JobId(0)}).ok());
  }
}

TEST_F(StorageTest, ReportsAFileThatIsNoDatabase) {
  std::ofstream(path_) << std::string(8192, 'x');
  const absl::Status status = open_sqlite_storage(path_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(path_));
}

TEST_F(StorageTest, ReportsADamagedFile) {
  {
    auto storage = open_sqlite_storage(path_);
    StorageBatch batch;
    for (uint64_t id = 1; id < 200; ++id) {
      batch.jobs[JobId(id)] = full_job();
      batch.jobs[JobId(id)].id = JobId(id);
    }
    ASSERT_TRUE((*storage)->commit(batch).ok());
  }
  std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
  for (int page = 2; page < 12; ++page)
    file.seekp(page * 4096).write(std::string(2048, '\xAA').data(), 2048);
  file.close();
  const absl::Status status = open_sqlite_storage(path_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
}

TEST_F(StorageTest, DemandsAWriteAheadLog) {
  // SQLite answers "memory" for an in-memory database, without an error.
  const absl::Status status = open_sqlite_storage(":memory:").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("journal mode memory"));
}

TEST_F(StorageTest, ReportsTheReasonOfAFailedWrite) {
  auto storage = open_sqlite_storage(path_);
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(path_.c_str(), &db), SQLITE_OK);
  // From now on each insertion of a job fails with a specific error.
  ASSERT_EQ(sqlite3_exec(
                db, "CREATE TRIGGER t BEFORE INSERT ON jobs BEGIN SELECT RAISE(ABORT, 'no'); END",
                nullptr, nullptr, nullptr),
            SQLITE_OK);
  sqlite3_close(db);
  const absl::Status status = (*storage)->commit({{{JobId(7), full_job()}}, {}, {}, JobId(0)});
  EXPECT_THAT(std::string(status.message()), HasSubstr("storing a job: no"));
}

TEST_F(StorageTest, RefusesANewerSchema) {
  open_sqlite_storage(path_).status().IgnoreError();
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(path_.c_str(), &db), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(db, "PRAGMA user_version=99", nullptr, nullptr, nullptr), SQLITE_OK);
  sqlite3_close(db);
  const absl::Status status = open_sqlite_storage(path_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("schema version 99"));
}

TEST_F(StorageTest, NamesTheRecordThatCannotBeRead) {
  auto storage = open_sqlite_storage(path_);
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(path_.c_str(), &db), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(db, "INSERT INTO jobs VALUES(5, '{')", nullptr, nullptr, nullptr),
            SQLITE_OK);
  sqlite3_close(db);
  const absl::Status status = (*storage)->load().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("the record of job 5"));
}

// Three records of five open incidents are damaged in the file: a summary, a record, and a record
// of an unknown kind.
TEST_F(StorageTest, UnreadableIncidentsDoNotPreventTheStart) {
  auto storage = open_sqlite_storage(path_);
  StorageBatch batch;
  for (uint64_t id = 1; id <= 5; ++id) {
    Incident incident = full_incident(id);
    incident.open = true;
    batch.incidents.emplace(IncidentId(id), incident);
  }
  ASSERT_TRUE((*storage)->commit(batch).ok());
  v1::Incident strange;
  strange.set_id(4);
  strange.set_kind("dancing");
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(path_.c_str(), &db), SQLITE_OK);
  sqlite3_stmt* put = nullptr;
  ASSERT_EQ(
      sqlite3_exec(db,
                   "UPDATE incidents SET summary=X'FF' WHERE id=2;"
                   "UPDATE incidents SET record=substr(record, 1, length(record) - 7) WHERE id=3;",
                   nullptr, nullptr, nullptr),
      SQLITE_OK);
  const std::string bytes = strange.SerializeAsString();
  ASSERT_EQ(sqlite3_prepare_v2(db, "UPDATE incidents SET record=?1 WHERE id=4", -1, &put, nullptr),
            SQLITE_OK);
  sqlite3_bind_blob(put, 1, bytes.data(), static_cast<int>(bytes.size()), SQLITE_STATIC);
  ASSERT_EQ(sqlite3_step(put), SQLITE_DONE);
  sqlite3_finalize(put);
  sqlite3_close(db);

  std::ostringstream logged;
  const auto logger = spdlog::default_logger();
  spdlog::set_default_logger(std::make_shared<spdlog::logger>(
      "test", std::make_shared<spdlog::sinks::ostream_sink_mt>(logged)));
  const auto state = (*storage)->load();
  spdlog::set_default_logger(logger);
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_EQ(state->incidents.size(), 5U) << "their numbers stay assigned";
  ASSERT_EQ(state->open_incidents.size(), 2U);
  EXPECT_EQ(state->open_incidents[0], batch.incidents.at(IncidentId(1)));
  EXPECT_EQ(state->open_incidents[1], batch.incidents.at(IncidentId(5)));
  for (const char* id : {"incident 2 ", "incident 3 ", "incident 4 "})
    EXPECT_THAT(logged.str(), HasSubstr(id));

  const auto list = (*storage)->incidents(JobId(0), 2);
  ASSERT_TRUE(list.ok()) << list.status();
  EXPECT_EQ(list->size(), 2U);
  EXPECT_EQ((*storage)->incidents(JobId(0), 100)->size(), 4U);
  const absl::Status status = (*storage)->incident(IncidentId(3)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("the record of incident 3"));
}

TEST_F(StorageTest, LeavesNothingWhenTheDiskIsFull) {
  auto storage = open_sqlite_storage(path_);
  ASSERT_TRUE((*storage)->commit({{{JobId(7), full_job()}}, {}, {}, JobId(0)}).ok());
  StorageBatch batch;
  for (uint64_t id = 100; id < 1'000; ++id) {
    batch.jobs[JobId(id)] = full_job();
    batch.jobs[JobId(id)].id = JobId(id);
  }
  absl::Status status;
  {
    const FileSizeLimit no_space(64 << 10);
    status = (*storage)->commit(batch);
  }
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), HasSubstr(path_));
  EXPECT_EQ((*storage)->load()->jobs.size(), 1U);
}

TEST_F(StorageTest, TheProgramKeepsItsStateToItsUser) {
  const std::string state = folder_.path() + "/state";
  const std::string command =
      absl::StrCat("umask 022; exec timeout -k 5 20 ", MUSTER_COORDINATOR, " --state-dir ", state,
                   " --listen 127.0.0.1:0 --http 127.0.0.1:0 --port-file ", folder_.path(),
                   "/ports --log-level off & p=$!; for i in $(seq 150); do [ -e ", folder_.path(),
                   "/ports ] && break; sleep 0.1; done; find ", state, " -perm /077 > ",
                   folder_.path(), "/open; kill $p; wait $p");
  EXPECT_EQ(std::system(command.c_str()), 0);
  EXPECT_TRUE(std::filesystem::exists(state + "/muster.db"));
  EXPECT_EQ(std::filesystem::file_size(folder_.path() + "/open"), 0U);
}

TEST_F(StorageTest, OneCoordinatorPerFolder) {
  auto lock = StateLock::take(folder_.path());
  ASSERT_TRUE(lock.ok());
  EXPECT_EQ(StateLock::take(folder_.path()).status().code(), absl::StatusCode::kAlreadyExists);
  lock->reset();
  EXPECT_TRUE(StateLock::take(folder_.path()).ok());
}

}  // namespace

std::unique_ptr<StorageUnderTest> StorageUnderTest::make(const std::string& path) {
  return std::make_unique<SqliteUnderTest>(path);
}

}  // namespace muster::coordinator
