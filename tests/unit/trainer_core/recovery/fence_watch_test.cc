#include "trainer_core/recovery/fence_watch.h"

#include <gmock/gmock.h>

#include <chrono>
#include <future>
#include <string>

#include "tests/unit/temp_folder.h"

namespace muster::trainer {
namespace {

constexpr Duration kInterval = std::chrono::milliseconds(10);

TEST(FenceWatch, ReportsOnlyALaterAttemptOfTheSameJob) {
  const TempFolder folder;
  const CheckpointOwner mine{.job = 7, .attempt = 2, .incarnation = 1};
  std::promise<std::string> fenced;
  auto end = fenced.get_future();
  const FenceWatch watch(
      folder.path(), mine, [&](const std::string& why) { fenced.set_value(why); }, kInterval);
  EXPECT_EQ(end.wait_for(5 * kInterval), std::future_status::timeout) << "there is no owner";
  for (const CheckpointOwner& other :
       {mine, CheckpointOwner{.job = 7, .attempt = 1, .incarnation = 2},
        CheckpointOwner{.job = 8, .attempt = 9, .incarnation = 3}}) {
    ASSERT_TRUE(DirectoryFence::take(folder.path(), other).ok());
    EXPECT_EQ(end.wait_for(5 * kInterval), std::future_status::timeout) << text_of(other);
  }
  ASSERT_TRUE(DirectoryFence::take(folder.path(), {.job = 7, .attempt = 3, .incarnation = 4}).ok());
  EXPECT_THAT(end.get(),
              testing::HasSubstr("belongs to attempt 3 of job 7 now; attempt 2 of job 7"));
}

// The coordinator of each `muster run` numbers its jobs from 1, so an earlier run in the directory
// may have had more attempts of "the same job".
TEST(FenceWatch, AnOwnerThatIsThereAtTheStartDoesNotCount) {
  const TempFolder folder;
  ASSERT_TRUE(DirectoryFence::take(folder.path(), {.job = 1, .attempt = 5, .incarnation = 1}).ok());
  std::promise<std::string> fenced;
  auto end = fenced.get_future();
  const CheckpointOwner mine{.job = 1, .attempt = 1, .incarnation = 2};
  const FenceWatch watch(
      folder.path(), mine, [&](const std::string& why) { fenced.set_value(why); }, kInterval);
  EXPECT_EQ(end.wait_for(10 * kInterval), std::future_status::timeout);
  ASSERT_TRUE(DirectoryFence::take(folder.path(), mine).ok());
  EXPECT_EQ(end.wait_for(5 * kInterval), std::future_status::timeout);
  ASSERT_TRUE(DirectoryFence::take(folder.path(), {.job = 1, .attempt = 2, .incarnation = 3}).ok());
  EXPECT_THAT(end.get(), testing::HasSubstr("belongs to attempt 2 of job 1 now"));
}

TEST(FenceWatch, CallsNothingAfterItsEnd) {
  const TempFolder folder;
  bool called = false;
  {
    const FenceWatch watch(
        folder.path(), {.job = 7, .attempt = 2, .incarnation = 1},
        [&](const std::string&) { called = true; }, kInterval);
  }
  ASSERT_TRUE(DirectoryFence::take(folder.path(), {.job = 7, .attempt = 3, .incarnation = 4}).ok());
  std::promise<void>().get_future().wait_for(5 * kInterval);
  EXPECT_FALSE(called);
}

}  // namespace
}  // namespace muster::trainer
