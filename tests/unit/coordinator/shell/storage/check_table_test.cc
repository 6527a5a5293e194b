#include "coordinator/shell/storage/check_table.h"

#include <string>

#include <gtest/gtest.h>

#include "coordinator/shell/storage/sqlite_storage.h"
#include "tests/unit/temp_folder.h"

namespace muster::coordinator {
namespace {

DeepCheckRecord full_check(int64_t unix_ns) {
  return {unix_ns, true,       3.5,
          "good",  "8 x H200", {{"gemm", 700, "TFLOP/s"}, {"memory", 4, "GB/s"}}};
}

TEST(CheckTableTest, ResultsAreKeptAndDeleted) {
  const TempFolder folder;
  const std::string path = folder.file("muster.db");
  const DeepChecks checks = {full_check(1), full_check(2)};
  {
    auto storage = open_sqlite_storage(path);
    ASSERT_TRUE(storage.ok()) << storage.status();
    StorageBatch batch;
    for (const char* name : {"a", "b"}) batch.deep_checks[WorkerName(name)] = checks;
    EXPECT_FALSE(batch.empty());
    ASSERT_TRUE((*storage)->commit(batch).ok());
    batch = {};
    batch.deep_checks[WorkerName("a")] = {};
    ASSERT_TRUE((*storage)->commit(batch).ok());
  }
  const auto state = (*open_sqlite_storage(path))->load();
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_EQ(state->deep_checks, (std::map<WorkerName, DeepChecks>{{WorkerName("b"), checks}}));
}

TEST(CheckTableTest, UnreadableResultsAreSkipped) {
  EXPECT_FALSE(checks_from_record("{").ok());
  EXPECT_FALSE(checks_from_record("[{\"unix_ns\": \"x\"}]").ok());
  const TempFolder folder;
  const std::string path = folder.file("muster.db");
  open_sqlite_storage(path).status().IgnoreError();
  {
    auto db = SqliteDatabase::open(path);
    ASSERT_TRUE(db.ok()) << db.status();
    ASSERT_TRUE(db->run("INSERT INTO deep_checks VALUES('a', 'x'), ('b', '[]')").ok());
  }
  const auto state = (*open_sqlite_storage(path))->load();
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_FALSE(state->deep_checks.contains(WorkerName("a")));
}

}  // namespace
}  // namespace muster::coordinator
