#include "trainer_core/checkpoint/owner.h"

#include <gmock/gmock.h>

#include <thread>

#include <gtest/gtest.h>

#include "tests/unit/temp_folder.h"
#include "tests/unit/trainer_core/checkpoint/checkpoint_helpers.h"

namespace muster::trainer {
namespace {

using testing::HasSubstr;
using Names = std::vector<std::string>;
namespace fs = std::filesystem;

constexpr CheckpointOwner kFirst{7, 1, 100};
constexpr CheckpointOwner kSecond{7, 2, 200};

TEST(Owner, AnOrphanedAttemptCannotSave) {
  TempFolder folder;
  CheckpointStore zombie(folder.path(), 1);
  ASSERT_TRUE(zombie.open(kFirst).ok());
  ASSERT_TRUE(save_state(zombie, 5, State(1)).ok());
  CheckpointStore live(folder.path(), 1);
  ASSERT_TRUE(live.open(kSecond).ok());
  const absl::Status status = save_state(zombie, 10, State(2));
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("belongs to attempt 2 of job 7 now; attempt 1 of job 7 does not save"));
  EXPECT_EQ(names_in(folder.path()), (Names{"5", "OWNER"}));
  EXPECT_TRUE(save_state(live, 6, State(3)).ok());
  EXPECT_EQ(names_in(folder.path()), (Names{"6", "OWNER"}));
}

// Two of one process id, as ranks of different containers may be, and of one job and attempt, as
// coordinators count from 1 again.
TEST(Owner, ConcurrentOpensSucceed) {
  TempFolder folder;
  std::vector<std::thread> threads;
  std::vector<absl::Status> failures(4);
  for (size_t t = 0; t < failures.size(); ++t) {
    threads.emplace_back([&, t] {
      for (uint64_t i = 0; i < 50; ++i) {
        CheckpointStore store(folder.path(), 1);
        failures[t].Update(store.open({7, 1, 100 * t + i}));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& failure : failures) EXPECT_TRUE(failure.ok()) << failure;
  EXPECT_EQ(names_in(folder.path()), (Names{"OWNER"}));
}

TEST(Owner, ALowerAttemptTouchesNothingWhileTheHigherOneLives) {
  TempFolder folder;
  CheckpointStore live(folder.path(), 1);
  ASSERT_TRUE(live.open(kSecond).ok());
  fs::create_directories(folder.file(".tmp-9-7-2"));
  CheckpointStore zombie(folder.path(), 1);
  EXPECT_EQ(zombie.open(kFirst).code(), absl::StatusCode::kAborted);
  EXPECT_TRUE(fs::exists(folder.file(".tmp-9-7-2")));
  EXPECT_TRUE(save_state(live, 5, State(1)).ok());
}

TEST(Owner, ACoordinatorThatCountsFromOneMayContinueAfterAnEndedRun) {
  TempFolder folder;
  { ASSERT_TRUE(CheckpointStore(folder.path(), 1).open(kSecond).ok()); }
  CheckpointStore store(folder.path(), 1);
  EXPECT_TRUE(store.open(kFirst).ok());
  EXPECT_TRUE(save_state(store, 5, State(1)).ok());
}

// Two manual runs have no incarnations; OWNER and the names of their files still distinguish them.
TEST(Owner, TwoRunsByHandAreTwoOwners) {
  TempFolder folder;
  const auto first = DirectoryFence::take(folder.path(), {});
  ASSERT_TRUE(first.ok()) << first.status();
  const auto text = owner_text(folder.path());
  const auto second = DirectoryFence::take(folder.path(), {});
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_NE((*first)->owner().incarnation, (*second)->owner().incarnation);
  EXPECT_NE(*owner_text(folder.path()), *text);
}

TEST(Owner, AnotherJobOrAnotherRunByHandTakesTheDirectory) {
  for (const auto& [before, after] :
       {std::pair(kFirst, CheckpointOwner{3, 1, 1}), std::pair(CheckpointOwner{}, kFirst),
        std::pair(CheckpointOwner{}, CheckpointOwner{})}) {
    TempFolder folder;
    CheckpointStore old(folder.path(), 1);
    CheckpointStore young(folder.path(), 1);
    ASSERT_TRUE(old.open(before).ok());
    ASSERT_TRUE(young.open(after).ok());
    EXPECT_EQ(save_state(old, 1, State(1)).code(), absl::StatusCode::kAborted);
    EXPECT_TRUE(save_state(young, 1, State(1)).ok());
  }
}

TEST(Owner, TheHigherAttemptReclaimsADeletedOrReplacedFile) {
  TempFolder folder;
  CheckpointStore live(folder.path(), 1);
  ASSERT_TRUE(live.open(kSecond).ok());
  fs::remove(folder.file("OWNER"));
  CheckpointStore zombie(folder.path(), 1);
  ASSERT_TRUE(zombie.open(kFirst).ok());
  EXPECT_TRUE(save_state(live, 1, State(1)).ok());
  EXPECT_EQ(save_state(zombie, 2, State(1)).code(), absl::StatusCode::kAborted);
  EXPECT_THAT(read_file(folder.file("OWNER")), HasSubstr("\"attempt\":2"));
  fs::remove(folder.file("OWNER"));
  EXPECT_TRUE(save_state(live, 3, State(1)).ok());
}

TEST(Owner, ArbitraryFileContentsDoNotCrash) {
  for (const std::string text : {"", "{", "[]", "7", R"({"job":"x"})", R"({"job":-1})"}) {
    TempFolder folder;
    write_file(folder.file("OWNER"), text);
    CheckpointStore store(folder.path(), 1);
    ASSERT_TRUE(store.open(kFirst).ok());
    fs::remove(folder.file("OWNER"));
    write_file(folder.file("OWNER"), text);
    EXPECT_EQ(save_state(store, 1, State(1)).code(), absl::StatusCode::kAborted);
  }
}

}  // namespace
}  // namespace muster::trainer
