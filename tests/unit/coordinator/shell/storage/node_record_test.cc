#include "coordinator/shell/storage/node_record.h"

#include <string>

#include <gtest/gtest.h>

#include "coordinator/shell/storage/sqlite_storage.h"
#include "tests/unit/temp_folder.h"

namespace muster::coordinator {
namespace {

NodeRecord full_node(const std::string& name) {
  NodeRecord node;
  node.worker = WorkerName(name);
  node.excluded = true;
  node.suspicion = Suspicion::kCheckFailed;
  node.reason = "core 3";
  node.since_unix_ns = 5;
  node.until_unix_ns = 7;
  node.drain_unix_ns = 8;
  node.drain_reason = "kernel update";
  node.for_drain = true;
  node.times = 2;
  node.check_due = true;
  node.fault_unix_ns = 4;
  node.fault = "rank 1 died";
  node.fault_job = JobId(9);
  node.checked_unix_ns = 6;
  node.check = {true, 0.25, "good", "8 cores"};
  return node;
}

TEST(NodeRecordTest, IsKept) {
  const TempFolder folder;
  const std::string path = folder.file("muster.db");
  {
    auto storage = open_sqlite_storage(path);
    ASSERT_TRUE(storage.ok()) << storage.status();
    StorageBatch batch;
    for (const char* name : {"a", "b"}) batch.nodes[WorkerName(name)] = full_node(name);
    ASSERT_TRUE((*storage)->commit(batch).ok());
    batch = {};
    batch.forgotten_nodes = {WorkerName("a")};
    ASSERT_TRUE((*storage)->commit(batch).ok());
  }
  const auto state = (*open_sqlite_storage(path))->load();
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_EQ(state->nodes, std::vector<NodeRecord>{full_node("b")});
}

TEST(NodeRecordTest, RefusesUnknownNames) {
  EXPECT_FALSE(node_from_record("{").ok());
  EXPECT_FALSE(node_from_record(R"({"worker": "a", "suspicion": "bad mood"})").ok());
}

// An unreadable record does not prevent the start: its node counts as healthy.
TEST(NodeRecordTest, UnreadableRecordsAreSkipped) {
  const TempFolder folder;
  const std::string path = folder.file("muster.db");
  open_sqlite_storage(path).status().IgnoreError();
  auto db = SqliteDatabase::open(path);
  ASSERT_TRUE(db.ok()) << db.status();
  ASSERT_TRUE(db->run("INSERT INTO nodes VALUES('a', '{}'), ('b', 'x')").ok());
  const auto state = (*open_sqlite_storage(path))->load();
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_TRUE(state->nodes.empty());
}

}  // namespace
}  // namespace muster::coordinator
