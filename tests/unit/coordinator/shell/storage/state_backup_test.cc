#include "coordinator/shell/storage/state_backup.h"

#include <gmock/gmock.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <stop_token>
#include <thread>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

#include "coordinator/shell/storage/sqlite_database.h"
#include "coordinator/shell/storage/sqlite_storage.h"
#include "tests/unit/temp_folder.h"

namespace muster::coordinator {
namespace {

StorageBatch job_batch(uint64_t id) {
  Job job;
  job.id = JobId(id);
  job.spec.name = absl::StrCat("job", id);
  job.spec.output_directory = absl::StrCat("/out/", id);
  job.spec.train_config_json = std::string(10'000, 'x');
  StorageBatch batch;
  batch.jobs.emplace(job.id, job);
  batch.last_job_id = job.id;
  return batch;
}

class StateBackupTest : public testing::Test {
 protected:
  StateBackupTest() { storage_ = open_sqlite_storage(folder_.file("muster.db")).value(); }

  TempFolder folder_;
  std::unique_ptr<Storage> storage_;
};

TEST_F(StateBackupTest, TheCopyHasTheStateAndAnotherStoreId) {
  ASSERT_TRUE(storage_->begin_epoch().ok());
  ASSERT_TRUE(storage_->commit(job_batch(7)).ok());
  const DurableState state = storage_->load().value();
  TempFolder other;
  {
    const auto backup = StateBackup::make(folder_.path());
    ASSERT_TRUE(backup.ok()) << backup.status();
    std::filesystem::copy_file(backup->path(), other.file("muster.db"));
  }
  EXPECT_FALSE(std::filesystem::exists(folder_.file("backup.tmp"))) << "it is removed";
  const auto restored = open_sqlite_storage(other.file("muster.db"));
  ASSERT_TRUE(restored.ok()) << restored.status();
  const DurableState loaded = (*restored)->load().value();
  ASSERT_EQ(loaded.jobs.size(), 1U);
  EXPECT_EQ(loaded.jobs[0].spec.name, "job7");
  EXPECT_EQ(loaded.last_job_id, JobId(7));
  EXPECT_EQ((*restored)->begin_epoch().value(), Epoch(2));
  EXPECT_NE(loaded.store, state.store);
  EXPECT_EQ(storage_->load().value().store, state.store) << "the original keeps its own";
}

// Each copy is the state after one of the transactions, in their order.
TEST_F(StateBackupTest, IsConsistentWhileTransactionsEnd) {
  ASSERT_TRUE(storage_->commit(job_batch(1)).ok());
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (uint64_t id = 2; !stop && id < 10'000; ++id)
      ASSERT_TRUE(storage_->commit(job_batch(id)).ok());
  });
  uint64_t last = 0;
  for (int i = 0; i < 5; ++i) {
    TempFolder other;
    {
      const auto backup = StateBackup::make(folder_.path());
      ASSERT_TRUE(backup.ok()) << backup.status();
      std::filesystem::copy_file(backup->path(), other.file("muster.db"));
    }
    const auto restored = open_sqlite_storage(other.file("muster.db"));
    ASSERT_TRUE(restored.ok()) << restored.status();
    const DurableState state = (*restored)->load().value();
    EXPECT_EQ(state.last_job_id, JobId(state.jobs.size()));
    EXPECT_GE(state.jobs.size(), last);
    last = state.jobs.size();
  }
  stop = true;
  writer.join();
  EXPECT_GT(last, 0U);
}

// A coordinator that leaves does not wait for the copy of a large state.
TEST_F(StateBackupTest, AStopEndsACopyBetweenTwoSteps) {
  for (uint64_t id = 1; id < 50; ++id) ASSERT_TRUE(storage_->commit(job_batch(id)).ok());
  std::stop_source stop;
  stop.request_stop();
  const auto backup = StateBackup::make(folder_.path(), stop.get_token());
  EXPECT_TRUE(absl::IsCancelled(backup.status())) << backup.status();
  EXPECT_FALSE(std::filesystem::exists(folder_.file("backup.tmp")));
  EXPECT_TRUE(StateBackup::make(folder_.path()).ok()) << "the next copy";
}

// The steps of a copy see one moment, however many transactions end between them.
TEST_F(StateBackupTest, ACopyOfSeveralStepsIsConsistentWhileTransactionsEnd) {
  // More than one step of 4 MiB.
  for (uint64_t id = 1; id <= 1'000; ++id) ASSERT_TRUE(storage_->commit(job_batch(id)).ok());
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (uint64_t id = 1'001; !stop && id < 20'000; ++id)
      ASSERT_TRUE(storage_->commit(job_batch(id)).ok());
  });
  TempFolder other;
  {
    const auto backup = StateBackup::make(folder_.path());
    ASSERT_TRUE(backup.ok()) << backup.status();
    std::filesystem::copy_file(backup->path(), other.file("muster.db"));
  }
  stop = true;
  writer.join();
  const auto restored = open_sqlite_storage(other.file("muster.db"));
  ASSERT_TRUE(restored.ok()) << restored.status();
  const DurableState state = (*restored)->load().value();
  EXPECT_GE(state.jobs.size(), 1'000U);
  EXPECT_EQ(state.last_job_id, JobId(state.jobs.size()));
}

TEST_F(StateBackupTest, ADamagedStateIsNotCopiedAsIfItWereWhole) {
  for (uint64_t id = 1; id < 50; ++id) ASSERT_TRUE(storage_->commit(job_batch(id)).ok());
  storage_.reset();
  std::fstream file(folder_.file("muster.db"), std::ios::in | std::ios::out | std::ios::binary);
  constexpr int kPage = 4096;
  for (int page = 5; page < 40; ++page) {
    file.seekp(page * kPage);
    file << std::string(200, '\x7f');
  }
  file.close();
  const auto backup = StateBackup::make(folder_.path());
  EXPECT_TRUE(absl::IsDataLoss(backup.status())) << backup.status();
  EXPECT_FALSE(std::filesystem::exists(folder_.file("backup.tmp")));
}

TEST_F(StateBackupTest, RemovesTheCopyOfAnEarlierProcess) {
  std::ofstream(folder_.file("backup.tmp")) << "half of a copy";
  const auto backup = StateBackup::make(folder_.path());
  ASSERT_TRUE(backup.ok()) << backup.status();
  EXPECT_TRUE(SqliteDatabase::open(backup->path())->one_text("PRAGMA quick_check(1)").ok());
}

}  // namespace
}  // namespace muster::coordinator
