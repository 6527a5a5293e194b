#include "trainer_core/comm/local.h"

#include <gmock/gmock.h>

#include <atomic>

#include <gtest/gtest.h>

#include "tests/unit/trainer_core/comm/collectives.h"

namespace muster::trainer {
namespace {

using std::chrono::milliseconds;
using testing::ContainsRegex;
using testing::HasSubstr;

class LocalGroups : public testing::TestWithParam<int> {};

TEST_P(LocalGroups, EveryCollectiveMatchesTheReference) {
  LocalWorld world(GetParam(), milliseconds(20'000));
  on_ranks(
      GetParam(), [&](int rank, int) { return world.join(rank, nullptr, "data"); },
      check_everything);
}
TEST_P(LocalGroups, SentBytesMatchTheFormulas) {
  if (GetParam() == 1) return;
  LocalWorld world(GetParam(), milliseconds(20'000));
  on_ranks(
      GetParam(), [&](int rank, int) { return world.join(rank, nullptr, "data"); },
      check_sent_bytes);
}
TEST(Local, TransfersLargerThanOneRound) {
  LocalWorld world(4, milliseconds(20'000));
  on_ranks(
      4, [&](int rank, int) { return world.join(rank, nullptr, "data"); }, check_large);
}
INSTANTIATE_TEST_SUITE_P(Sizes, LocalGroups, testing::Values(1, 2, 3, 4, 8));

TEST(Local, CollectivesShowOnTheProgressPage) {
  LocalWorld world(1, milliseconds(1000));
  auto page = ProgressWriter::anonymous({});
  auto group = world.join(0, page.get(), "data");
  std::vector<float> data(10);
  ASSERT_TRUE(group->all_reduce(data, "gradients").ok());
  ASSERT_TRUE(group->barrier("end").ok());
  const GroupProgress& progress = page->page().groups[0];
  EXPECT_STREQ(progress.name.data(), "data");
  EXPECT_EQ(progress.enqueued, 2U);
  EXPECT_EQ(progress.completed, 2U);
  EXPECT_STREQ(page->page().ring[0].name.data(), "gradients");
  EXPECT_EQ(page->page().ring[0].bytes, 40U);
}

TEST(Local, ALostPeerIsUnavailableAtOnce) {
  LocalWorld world(3, milliseconds(20'000));
  std::atomic<int> unavailable{0};
  on_ranks(
      3, [&](int rank, int) { return world.join(rank, nullptr, "data"); },
      [&](ProcessGroup& group) {
        std::vector<float> data(100);
        ASSERT_TRUE(group.all_reduce(data, "first").ok());
        if (group.rank() == 1) return;
        const absl::Status status = group.all_reduce(data, "second");
        EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
        EXPECT_THAT(std::string(status.message()),
                    HasSubstr("all-reduce \"second\" (number 2 of group \"data\")"));
        EXPECT_EQ(group.barrier("third").code(), absl::StatusCode::kUnavailable);
        ++unavailable;
      });
  EXPECT_EQ(unavailable, 2);
}

TEST(Local, ATimeoutNamesTheMissingRank) {
  LocalWorld world(3, milliseconds(100));
  std::atomic<bool> named{false};
  std::atomic<int> done{0};
  on_ranks(
      3, [&](int rank, int) { return world.join(rank, nullptr, "data"); },
      [&](ProcessGroup& group) {
        if (group.rank() == 2) {
          while (done < 2) std::this_thread::yield();
          return;
        }
        const absl::Status status = group.barrier("stuck");
        EXPECT_FALSE(status.ok());
        if (status.code() == absl::StatusCode::kDeadlineExceeded) {
          // A rank that has not begun by then is silent, too.
          EXPECT_THAT(std::string(status.message()),
                      ContainsRegex("nothing came from ranks? ([01], )?2[ ,]"));
          named = true;
        }
        ++done;
      });
  EXPECT_TRUE(named);
}

TEST(Local, AbortFromAnotherThreadEndsTheWait) {
  const LocalWorld world(2, milliseconds(20'000));
  EXPECT_THAT(abort_from_another_thread(
                  [&](int rank, ProgressWriter* page) { return world.join(rank, page, "data"); }),
              HasSubstr("rank 0 aborted"));
}

}  // namespace
}  // namespace muster::trainer
