#include "coordinator/core/sweep/check_history.h"

#include <map>
#include <string>
#include <utility>

#include <gtest/gtest.h>

namespace muster::coordinator {
namespace {

DeepCheckRecord record(int64_t unix_ns, bool passed, const std::string& kind = "8 x H200") {
  return {unix_ns, passed, 1, "text", kind, {{"gemm", static_cast<double>(unix_ns), "TFLOP/s"}}};
}

TEST(CheckHistoryTest, TheNewestResultsAreRetained) {
  CheckHistory history;
  const WorkerName node("node1");
  EXPECT_EQ(history.newest_unix_ns(node), 0);
  const auto count = static_cast<int64_t>(kDeepChecksKeptMax) + 3;
  for (int64_t i = 1; i <= count; ++i) history.add(node, record(i, true));
  ASSERT_EQ(history.of(node).size(), kDeepChecksKeptMax);
  EXPECT_EQ(history.of(node).front().unix_ns, 4);
  EXPECT_EQ(history.newest_unix_ns(node), count);
  const auto changes = history.take_changes();
  ASSERT_EQ(changes.size(), 1U);
  EXPECT_EQ(changes.at(node), history.of(node));
  EXPECT_TRUE(history.take_changes().empty());
}

TEST(CheckHistoryTest, OnlyPassedResultsOfTheKindAreReferences) {
  CheckHistory history;
  const WorkerName one("node1");
  history.add(one, record(1, true));
  history.add(one, record(2, true, "8 x H100"));
  history.add(one, record(3, false));
  EXPECT_EQ(history.earlier(one, "8 x H200").size(), 1U);
  ASSERT_NE(newest_passed(history.of(one)), nullptr);
  EXPECT_EQ(newest_passed(history.of(one))->unix_ns, 2);
  EXPECT_EQ(newest_passed({record(1, false)}), nullptr);
}

TEST(CheckHistoryTest, TheOldestHistoriesAreDropped) {
  std::map<WorkerName, DeepChecks> stored = {{WorkerName("empty"), {}}};
  for (size_t i = 0; i < kHistoriesMax; ++i)
    stored[WorkerName("node" + std::to_string(i))] = {record(static_cast<int64_t>(i), true)};
  CheckHistory history(std::move(stored));
  history.add(WorkerName("node0"), record(1'000'000, true));  // the oldest one is renewed
  history.add(WorkerName("another"), record(1'000'001, true));
  EXPECT_EQ(history.all().size(), kHistoriesMax);
  EXPECT_TRUE(history.of(WorkerName("node1")).empty());
  EXPECT_FALSE(history.of(WorkerName("node0")).empty());
  const auto changes = history.take_changes();
  EXPECT_EQ(changes.size(), 3U);
  EXPECT_TRUE(changes.at(WorkerName("node1")).empty()) << "it is deleted from the store";
}

}  // namespace
}  // namespace muster::coordinator
