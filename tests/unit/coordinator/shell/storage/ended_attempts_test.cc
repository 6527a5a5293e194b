#include "coordinator/shell/storage/ended_attempts.h"

#include <memory>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>
#include <sqlite3.h>

#include "coordinator/shell/storage/sqlite_storage.h"
#include "tests/unit/temp_folder.h"

namespace muster::coordinator {
namespace {

AttemptRecord attempt_of(uint64_t job, uint32_t number) {
  AttemptRecord record;
  record.job = JobId(job);
  record.attempt = Attempt(number);
  record.started_unix_ns = 1'000 + number;
  record.ended_unix_ns = 2'000 + number;
  record.nodes = 3;
  record.workers = "node[1-3]";
  record.last_step = number * 10;
  record.end = absl::StrCat("end of attempt ", number);
  return record;
}

class EndedAttemptsTest : public testing::Test {
 protected:
  std::unique_ptr<Storage> open() {
    auto storage = open_sqlite_storage(path_);
    EXPECT_TRUE(storage.ok()) << storage.status();
    return *std::move(storage);
  }
  std::vector<uint32_t> numbers(Storage& storage, uint64_t job, uint32_t before, size_t count) {
    const auto attempts = storage.attempts(JobId(job), Attempt(before), count);
    EXPECT_TRUE(attempts.ok()) << attempts.status();
    std::vector<uint32_t> numbers;
    for (const v1::JobAttempt& attempt : *attempts) numbers.push_back(attempt.attempt());
    return numbers;
  }

  TempFolder folder_;
  std::string path_ = folder_.path() + "/muster.db";
};

using Attempts = std::vector<uint32_t>;

TEST_F(EndedAttemptsTest, AreListedNewestFirst) {
  {
    StorageBatch batch;
    for (uint32_t i = 1; i <= 4; ++i) batch.attempts.push_back(attempt_of(7, i));
    batch.attempts.push_back(attempt_of(8, 1));
    ASSERT_TRUE(open()->commit(batch).ok());
  }
  const auto storage = open();
  EXPECT_EQ(numbers(*storage, 7, UINT32_MAX, 10), (Attempts{4, 3, 2, 1}));
  EXPECT_EQ(numbers(*storage, 7, UINT32_MAX, 2), (Attempts{4, 3}));
  EXPECT_EQ(numbers(*storage, 7, 3, 10), (Attempts{2, 1}));
  EXPECT_EQ(numbers(*storage, 9, UINT32_MAX, 10), Attempts{});
  const v1::JobAttempt newest = storage->attempts(JobId(7), Attempt(UINT32_MAX), 1)->front();
  EXPECT_EQ(newest.end(), "end of attempt 4");
  EXPECT_EQ(newest.last_step(), 40);
  EXPECT_EQ(newest.workers(), "node[1-3]");

  StorageBatch forget;
  forget.forgotten = {JobId(7)};
  ASSERT_TRUE(storage->commit(forget).ok());
  EXPECT_EQ(numbers(*storage, 7, UINT32_MAX, 10), Attempts{});
  EXPECT_EQ(numbers(*storage, 8, UINT32_MAX, 10), Attempts{1});
}

TEST_F(EndedAttemptsTest, AreBoundedPerJob) {
  const auto storage = open();
  StorageBatch batch;
  for (uint32_t i = 1; i <= kAttemptsKeptMax + 5; ++i) batch.attempts.push_back(attempt_of(7, i));
  batch.attempts.push_back(attempt_of(8, 2));
  ASSERT_TRUE(storage->commit(batch).ok());
  const Attempts kept = numbers(*storage, 7, UINT32_MAX, 2 * kAttemptsKeptMax);
  ASSERT_EQ(kept.size(), kAttemptsKeptMax);
  EXPECT_EQ(kept.back(), 6U);
  EXPECT_EQ(numbers(*storage, 8, UINT32_MAX, 10), Attempts{2});
}

TEST_F(EndedAttemptsTest, AnUnreadableRecordIsLeftOut) {
  StorageBatch batch;
  for (uint32_t i = 1; i <= 3; ++i) batch.attempts.push_back(attempt_of(7, i));
  ASSERT_TRUE(open()->commit(batch).ok());
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(path_.c_str(), &db), SQLITE_OK);
  EXPECT_EQ(sqlite3_exec(db, "UPDATE attempts SET record=x'ff' WHERE attempt=2", nullptr, nullptr,
                         nullptr),
            SQLITE_OK);
  sqlite3_close(db);
  EXPECT_EQ(numbers(*open(), 7, UINT32_MAX, 10), (Attempts{3, 1}));
}

}  // namespace
}  // namespace muster::coordinator
