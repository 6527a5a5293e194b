#include "coordinator/shell/storage/usage_table.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "coordinator/shell/storage/sqlite_storage.h"
#include "tests/unit/temp_folder.h"

namespace muster::coordinator {
namespace {

TEST(UsageTableTest, UsagesAreKeptAndDeleted) {
  const TempFolder folder;
  const std::string path = folder.file("muster.db");
  const UsageRecord ada{{false, "ada"}, 1234.5, 77};
  const UsageRecord vision{{true, "vision"}, 0.25, INT64_MAX};
  StorageBatch batch;
  batch.usages = {
      {ada.party, ada}, {vision.party, vision}, {{false, "bob"}, {{false, "bob"}, 3, 4}}};
  EXPECT_FALSE(batch.empty());
  ASSERT_TRUE((*open_sqlite_storage(path))->commit(batch).ok());
  batch.usages = {{{false, "bob"}, {{false, "bob"}, 0, 5}}};
  ASSERT_TRUE((*open_sqlite_storage(path))->commit(batch).ok());
  const auto state = (*open_sqlite_storage(path))->load();
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_EQ(state->usages, (std::vector<UsageRecord>{ada, vision}));
}

TEST(PolicyTableTest, TheNewestTextIsKept) {
  const TempFolder folder;
  const std::string path = folder.file("muster.db");
  EXPECT_EQ((*open_sqlite_storage(path))->load()->queue_policy, "");
  for (const char* text : {"{}", R"({"half_life_hours": 2})"}) {
    StorageBatch batch;
    batch.queue_policy = text;
    EXPECT_FALSE(batch.empty());
    ASSERT_TRUE((*open_sqlite_storage(path))->commit(batch).ok());
  }
  EXPECT_EQ((*open_sqlite_storage(path))->load()->queue_policy, R"({"half_life_hours": 2})");
}

}  // namespace
}  // namespace muster::coordinator
