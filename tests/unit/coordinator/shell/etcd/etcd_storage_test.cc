#include "coordinator/shell/etcd/etcd_storage.h"

#include <gmock/gmock.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

#include "coordinator/shell/etcd/key_changes.h"
#include "coordinator/shell/etcd/row_codec.h"
#include "coordinator/shell/storage/job_record.h"
#include "coordinator/shell/storage/sqlite_storage.h"
#include "etcd/etcd.pb.h"
#include "etcd/state.pb.h"
#include "tests/unit/coordinator/shell/etcd/etcd_server.h"
#include "tests/unit/coordinator/shell/etcd/lossy_link.h"
#include "tests/unit/coordinator/shell/full_incident.h"
#include "tests/unit/coordinator/shell/full_job.h"
#include "tests/unit/coordinator/shell/storage/storage_under_test.h"
#include "tests/unit/file_size_limit.h"

namespace muster::coordinator {
namespace {

using testing::HasSubstr;

constexpr Duration kTerm = std::chrono::seconds(60);

// Each opening is another coordinator's term.
class EtcdUnderTest final : public StorageUnderTest {
 public:
  explicit EtcdUnderTest(const std::string& path) : path_(path) {
    options_.endpoints = EtcdServer::shared().endpoint();
    options_.prefix = path;
  }
  absl::StatusOr<std::unique_ptr<Storage>> open() override {
    term_.reset();
    term_ = std::make_unique<Term>(options_, kTerm);
    return open_etcd_storage(*term_->client, *term_->lease, path_);
  }

 private:
  const std::string path_;
  EtcdOptions options_;
  std::unique_ptr<Term> term_;
};

class EtcdStorageTest : public EtcdTest {
 protected:
  std::string path(const std::string& name) const { return folder_.file(name + ".db"); }
  static StorageBatch submission(uint64_t id) {
    StorageBatch batch;
    Job job = full_job();
    job.id = batch.last_job_id = JobId(id);
    batch.request_ids[absl::StrCat("r", id)] = job.id;
    batch.jobs[job.id] = std::move(job);
    return batch;
  }
};

TEST_F(EtcdStorageTest, EpochsAndStoreAreThoseOfTheFleet) {
  std::optional<StoreId> store;
  for (uint64_t epoch = 1; epoch <= 3; ++epoch) {
    Term term(options(), kLong);
    // Each coordinator has a disk of its own.
    term.open(path(absl::StrCat(epoch)));
    ASSERT_NE(term.storage, nullptr);
    EXPECT_EQ(term.storage->begin_epoch().value(), Epoch(epoch));
    const auto state = term.storage->load();
    ASSERT_TRUE(state.ok()) << state.status();
    EXPECT_EQ(store.value_or(state->store), state->store);
    store = state->store;
  }
}

TEST_F(EtcdStorageTest, ADeposedLeadersCommitIsNowhere) {
  Term first(options(), kLong);
  first.open(path("first"));
  ASSERT_TRUE(first.storage->commit(submission(1)).ok());
  depose();
  Term second(options(), kLong);
  second.open(path("second"));
  const absl::Status status = first.storage->commit(submission(2));
  EXPECT_TRUE(is_deposed(status)) << status;
  EXPECT_TRUE(is_deposed(first.storage->begin_epoch().status()));
  EXPECT_EQ(first.storage->load()->jobs.size(), 1U) << "its file has no part of it, either";
  ASSERT_TRUE(second.storage->commit(submission(3)).ok());
  second.lease->resign();
  Term third(options(), kLong);
  third.open(path("third"));
  const auto state = third.storage->load();
  ASSERT_TRUE(state.ok());
  ASSERT_EQ(state->jobs.size(), 2U);
  EXPECT_EQ(state->jobs[1].id, JobId(3));
  EXPECT_EQ(state->request_ids.count("r2"), 0U);
}

// The file of a former term is replaced, whatever is in it.
TEST_F(EtcdStorageTest, TheFileIsBuiltFromEtcd) {
  write_file(path("a"), "no database");
  write_file(path("a") + "-wal", "no log");
  {
    Term term(options(), kLong);
    term.open(path("a"));
    ASSERT_TRUE(term.storage->commit(submission(1)).ok());
  }
  {
    Term term(options(), kLong);
    term.open(path("b"));
    ASSERT_TRUE(term.storage->commit(submission(2)).ok());
  }
  Term term(options(), kLong);
  term.open(path("a"));
  EXPECT_EQ(term.storage->load()->jobs.size(), 2U);
}

// A first start has no file, so that a file on an empty prefix shows that etcd has lost the state,
// or that the prefix is wrong.
TEST_F(EtcdStorageTest, AnEmptyPrefixReplacesNoEarlierState) {
  {
    Term term(options(), kLong);
    term.open(path("a"));
    ASSERT_TRUE(term.storage->commit(submission(1)).ok());
  }
  const auto rows = rows_of(path("a"));
  EtcdOptions other = options();
  other.prefix += "-other";
  Term term(other, kLong);
  const absl::Status status =
      open_etcd_storage(*term.client, *term.lease, path("a"), path("a")).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(other.prefix + "/, and " + path("a")));
  EXPECT_EQ(rows_of(path("a")), rows);
}

// A page takes longer than the lease, whose renewals continue.
TEST_F(EtcdStorageTest, ALargeStateArrivesOverASlowLink) {
  constexpr Duration kTtl = std::chrono::seconds(3);
  StorageBatch batch;
  Job job = full_job();
  {
    Term term(options(), kLong);
    term.open(path("a"));
    for (uint64_t id = 1; id <= 30; ++id) {
      job.id = batch.last_job_id = JobId(id);
      job.reason = std::string(400'000, 'x');
      batch.jobs[job.id] = job;
    }
    ASSERT_TRUE(term.storage->commit(batch).ok());
  }
  LossyLink link(EtcdServer::shared().port());
  EtcdOptions slow = options();
  slow.endpoints = link.endpoint();
  Term term(slow, kTtl);
  link.slow_down(3'000'000);
  term.open(path("b"));
  ASSERT_NE(term.storage, nullptr);
  EXPECT_TRUE(term.lease->is_held());
  EXPECT_EQ(rows_of(path("b")), rows_of(path("a")));
}

// Another coordinator has another disk.
TEST_F(EtcdStorageTest, ALeaderWithAFullDiskEndsAndItsCommitIsStored) {
  Term first(options(), kLong);
  first.open(path("first"));
  ASSERT_TRUE(first.storage->commit(submission(1)).ok());
  {
    const FileSizeLimit no_space(1);
    const absl::Status status = first.storage->commit(submission(2));
    EXPECT_TRUE(is_deposed(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("cannot write its copy of the state"));
  }
  first.storage.reset();
  first.lease->resign();
  Term second(options(), kLong);
  second.open(path("second"));
  EXPECT_EQ(second.storage->load()->jobs.size(), 2U);
}

TEST_F(EtcdStorageTest, LargeBatches) {
  Job job = full_job();
  job.reason = std::string(5 << 20, 'x');
  StorageBatch batch;
  constexpr size_t kExits = 50'000;
  {
    Term term(options(), kLong);
    term.open(path("first"));
    job.exits.clear();
    batch.jobs[job.id] = job;
    ASSERT_TRUE(term.storage->commit(batch).ok());
    batch = {};
    for (size_t i = 0; i < kExits; ++i)
      batch.exits.push_back({job.id, job.attempt, i, full_job().exits[0]});
    const absl::Status status = term.storage->commit(batch);
    ASSERT_TRUE(status.ok()) << status;
  }
  {
    Term term(options(), kLong);
    term.open(path("second"));
    EXPECT_EQ(term.storage->load()->jobs.at(0).exits.size(), kExits);
    EXPECT_EQ(term.storage->load()->jobs.at(0).reason.size(), job.reason.size());
    EXPECT_EQ(rows_of(path("second")), rows_of(path("first")));
    // A large row becomes small, and the exits of the attempt end with the next one.
    job.reason = "small";
    job.attempt = Attempt(job.attempt.value() + 1);
    batch = {};
    batch.jobs[job.id] = job;
    ASSERT_TRUE(term.storage->commit(batch).ok());
  }
  size_t jobs = 0;
  for (const auto& [key, value] : keys()) {
    EXPECT_FALSE(absl::StartsWith(key, "rows/exits/")) << key;
    if (absl::StartsWith(key, "rows/jobs/")) ++jobs;
  }
  EXPECT_EQ(jobs, 1U) << "no part of the large row is left";
  Term term(options(), kLong);
  term.open(path("third"));
  EXPECT_EQ(term.storage->load()->jobs.at(0).reason, "small");
}

TEST_F(EtcdStorageTest, EndedJobsSecretsLeaveEtcd) {
  Term term(options(), kLong);
  term.open(path("a"));
  const auto count = [&] {
    size_t found = 0;
    for (const auto& [key, value] : keys()) found += absl::StrContains(value, "hunter2") ? 1 : 0;
    return found;
  };
  Job job = full_job();
  job.spec.environment["HF_TOKEN"] = "hunter2";
  StorageBatch batch;
  batch.jobs[job.id] = job;
  ASSERT_TRUE(term.storage->commit(batch).ok());
  EXPECT_EQ(count(), 1U);
  etcdserverpb::RangeRequest past;
  past.set_key(term.client->key("rows/jobs/7"));
  past.set_revision(term.client->range(past, kLong)->header().revision());
  job.state = JobState::kFailed;
  job.spec.environment["HF_TOKEN"].clear();
  batch.jobs[job.id] = job;
  ASSERT_TRUE(term.storage->commit(batch).ok());
  EXPECT_EQ(count(), 0U);
  EXPECT_TRUE(absl::IsOutOfRange(term.client->range(past, kLong).status()));
}

TEST_F(EtcdStorageTest, ANewerSchemaIsRefused) {
  {
    Term term(options(), kLong);
    term.open(path("a"));
  }
  etcd_state::StoredSchema schema;
  schema.set_version(99);
  put("schema", schema.SerializeAsString());
  const auto before = keys();
  Term term(options(), kLong);
  const absl::Status status = open_etcd_storage(*term.client, *term.lease, path("a")).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("schema version 99"));
  term.lease->resign();
  EXPECT_EQ(keys(), before);
}

// The state as version 1 would have stored it.
TEST_F(EtcdStorageTest, AnOlderSchemaIsRaised) {
  etcd_state::StoredSchema schema;
  schema.set_version(1);
  schema.add_statements("CREATE TABLE jobs(id INTEGER PRIMARY KEY, record TEXT NOT NULL)");
  schema.add_statements(
      "CREATE TABLE meta(key TEXT PRIMARY KEY, value INTEGER NOT NULL) "
      "WITHOUT ROWID");
  schema.add_statements(
      "CREATE TABLE request_ids(request_id TEXT PRIMARY KEY, job INTEGER NOT "
      "NULL) WITHOUT ROWID");
  schema.add_statements("CREATE INDEX request_ids_by_job ON request_ids(job)");
  put("schema", schema.SerializeAsString());
  put("rows/meta/'last_job_id", encode_row({std::string("last_job_id"), int64_t{9}})[0]);
  for (int round = 0; round < 2; ++round) {
    Term term(options(), kLong);
    term.open(path("a"));
    ASSERT_NE(term.storage, nullptr);
    EXPECT_EQ(term.storage->load()->last_job_id, JobId(9));
    for (const auto& [key, value] : keys()) {
      if (key == "schema") {
        EXPECT_TRUE(schema.ParseFromString(value));
      }
    }
    EXPECT_EQ(schema.version(), static_cast<uint32_t>(kSchemaVersion));
    StorageBatch batch;
    batch.incidents = {{IncidentId(1), full_incident(1)}};
    EXPECT_TRUE(term.storage->commit(batch).ok());
  }
}

TEST_F(EtcdStorageTest, UnreadableRowsAreNamed) {
  {
    Term term(options(), kLong);
    term.open(path("a"));
  }
  const auto problem = [&](const std::string& key, const std::string& value) {
    put(key, value);
    Term term(options(), kLong);
    const absl::Status status = open_etcd_storage(*term.client, *term.lease, path("a")).status();
    EXPECT_TRUE(absl::IsDataLoss(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(options().prefix + "/" + key));
  };
  problem("rows/meta/'x", "\xFF");
  problem("rows/meta/'x", encode_row({std::string("x")})[0]);
  put("rows/meta/'x", encode_row({std::string("x"), int64_t{1}})[0]);
  problem("rows/zebras/1", encode_row({int64_t{1}})[0]);
  problem("schema", "\xFF");
}

TEST_F(EtcdStorageTest, ReportsThatEtcdHasNoSpace) {
  const EtcdServer server({"--quota-backend-bytes=4194304"});
  EtcdOptions options;
  options.endpoints = server.endpoint();
  Term term(options, kLong);
  term.open(path("a"));
  ASSERT_NE(term.storage, nullptr);
  absl::Status status;
  uint64_t id = 0;
  StorageBatch batch;
  while (status.ok() && id < 200) {
    batch = submission(++id);
    batch.jobs.begin()->second.reason = std::string(100'000, 'x');
    status = term.storage->commit(batch);
  }
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("etcdctl alarm disarm"));
  EXPECT_TRUE(absl::IsResourceExhausted(term.storage->commit(batch))) << "as PatientStorage does";
  EXPECT_EQ(term.storage->load()->jobs.size(), id - 1) << "nothing of it is stored";
  EXPECT_TRUE(term.lease->is_held());
}

TEST_F(EtcdStorageTest, TakesTheStateOfASingleCoordinator) {
  {
    auto sqlite = open_sqlite_storage(path("single"));
    ASSERT_TRUE(sqlite.ok());
    ASSERT_TRUE((*sqlite)->begin_epoch().ok());
    for (uint64_t id = 1; id <= 3; ++id) ASSERT_TRUE((*sqlite)->commit(submission(id)).ok());
  }
  const auto rows = rows_of(path("single"));
  {
    Term term(options(), kLong);
    EXPECT_FALSE(is_in_etcd(path("single"), *term.client, *term.lease).value());
    const absl::Status imported = import_into_etcd(path("single"), *term.client, *term.lease);
    ASSERT_TRUE(imported.ok()) << imported;
    term.open(path("a"));
    EXPECT_EQ(rows_of(path("a")), rows);
    EXPECT_EQ(term.storage->begin_epoch().value(), Epoch(2));
    const absl::Status again = import_into_etcd(path("single"), *term.client, *term.lease);
    EXPECT_TRUE(absl::IsAlreadyExists(again)) << again;
    EXPECT_TRUE(is_in_etcd(path("single"), *term.client, *term.lease).value());
    ASSERT_TRUE(open_sqlite_storage(path("another")).ok());
    EXPECT_FALSE(is_in_etcd(path("another"), *term.client, *term.lease).value());
  }
  EXPECT_EQ(rows_of(path("single")), rows) << "the file stays as it was";
  EXPECT_FALSE(std::filesystem::exists(path("single") + ".import"));
  EtcdOptions other = options();
  other.prefix += "-other";
  Term term(other, kLong);
  EXPECT_TRUE(absl::IsNotFound(import_into_etcd(path("none"), *term.client, *term.lease)));
  EXPECT_FALSE(std::filesystem::exists(path("none")));
}

}  // namespace

std::unique_ptr<StorageUnderTest> StorageUnderTest::make(const std::string& path) {
  if (EtcdServer::program().empty()) return nullptr;
  return std::make_unique<EtcdUnderTest>(path);
}

}  // namespace muster::coordinator
