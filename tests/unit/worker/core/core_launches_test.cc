// Retention of launches' folders.
#include <gmock/gmock.h>

#include <csignal>

#include "tests/unit/worker/core/core_fixture.h"

namespace muster::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class CoreLaunchesTest : public CoreTest {
 protected:
  static std::vector<LaunchKey> removed(const ActionList& actions) {
    std::vector<LaunchKey> launches;
    for (const RemoveLaunch& action : actions_of<RemoveLaunch>(actions))
      launches.push_back(action.launch);
    return launches;
  }
  static LaunchKey launch(uint64_t job, uint32_t attempt = 1) {
    return {JobId(job), Attempt(attempt)};
  }

  // Ends a rank, and acknowledges its end but not its log.
  void end(const RankKey& rank) {
    const auto reports = actions_of<SendRankExited>(step(RankReaped{rank, 0, 0, 1, ""}));
    ASSERT_THAT(reports, SizeIs(1));
    EXPECT_THAT(actions_of<ForgetRank>(step(ReportAcked{reports[0].report_id})), SizeIs(1));
  }

  // Runs job `job` with one rank from its start to its complete acknowledgement.
  std::vector<LaunchKey> run_through(uint64_t job) {
    start_up(start(job, 1, 1));
    end(key(job, 1, 0));
    return removed(step(LogSettled{key(job, 1, 0)}));
  }
};

TEST_F(CoreLaunchesTest, TheNewestFinishedLaunchesAreKept) {
  connect();
  for (uint64_t job = 1; job <= kLaunchesKeptMax; ++job) EXPECT_THAT(run_through(job), IsEmpty());
  EXPECT_THAT(run_through(kLaunchesKeptMax + 1), ElementsAre(launch(1)));
  EXPECT_THAT(run_through(kLaunchesKeptMax + 2), ElementsAre(launch(2)));
}

TEST_F(CoreLaunchesTest, AnUnfinishedLaunchIsNeverRemoved) {
  connect();
  start_up(start(1, 1, 1));  // runs
  start_up(start(2, 1, 1));
  step(RankReaped{key(2, 1, 0), 0, 0, 1, ""});  // its end is not acknowledged
  start_up(start(3, 1, 2));
  end(key(3, 1, 0));  // its log is not acknowledged
  end(key(3, 1, 1));
  EXPECT_THAT(removed(step(LogSettled{key(3, 1, 1)})), IsEmpty());
  std::vector<LaunchKey> gone;
  for (uint64_t job = 10; job < 10 + 2 * kLaunchesKeptMax; ++job) {
    for (const LaunchKey& old : run_through(job)) gone.push_back(old);
  }
  EXPECT_THAT(gone, SizeIs(kLaunchesKeptMax));
  EXPECT_EQ(gone.front(), launch(10));
  EXPECT_THAT(removed(step(LogSettled{key(3, 1, 0)})), ElementsAre(launch(10 + kLaunchesKeptMax)))
      << "now it is the newest of those that finished";
  EXPECT_THAT(removed(step(LogSettled{key(3, 1, 0)})), IsEmpty()) << "a repeat";
}

TEST_F(CoreLaunchesTest, FoldersOfEarlierLivesAreTheOldest) {
  LaunchesFound found;
  for (uint64_t job = 1; job <= kLaunchesKeptMax + 2; ++job)
    found.oldest_first.push_back(launch(job, 7));
  EXPECT_THAT(removed(step(found)), ElementsAre(launch(1, 7), launch(2, 7)));
  EXPECT_THAT(removed(step(LaunchesFound{{launch(5, 7)}})), IsEmpty()) << "known already";
  connect();
  EXPECT_THAT(run_through(100), ElementsAre(launch(3, 7)));
}

// Another coordinator's state begins with job 1 again.
TEST_F(CoreLaunchesTest, AReusedFolderIsNotRemoved) {
  LaunchesFound found;
  for (uint64_t job = 1; job <= kLaunchesKeptMax; ++job) found.oldest_first.push_back(launch(job));
  EXPECT_THAT(removed(step(found)), IsEmpty());
  connect();
  start_up(start(1, 1, 1));
  EXPECT_THAT(run_through(100), IsEmpty()) << "job 1 runs and does not count";
  EXPECT_THAT(run_through(101), ElementsAre(launch(2)));
  end(key(1, 1, 0));
  EXPECT_THAT(removed(step(LogSettled{key(1, 1, 0)})), ElementsAre(launch(3)));
}

TEST_F(CoreLaunchesTest, ALaunchWithoutAFolderEvictsNoOther) {
  connect();
  for (uint64_t job = 1; job <= kLaunchesKeptMax; ++job) run_through(job);
  const auto refused = actions_of<SendRankExited>(step(start(50, 1, 5)));  // more ranks than slots
  ASSERT_THAT(refused, SizeIs(5));
  for (const SendRankExited& report : refused) {
    step(ReportAcked{report.report_id});
    EXPECT_THAT(removed(step(LogSettled{report.key})), IsEmpty());
  }
}

TEST_F(CoreLaunchesTest, ARemovedLaunchIsForgotten) {
  connect();
  run_through(1);
  EXPECT_THAT(actions_of<SpawnRank>(step(start(1, 1, 1))), IsEmpty()) << "it has been seen";
  for (uint64_t job = 2; job <= kLaunchesKeptMax + 1; ++job) run_through(job);
  EXPECT_THAT(actions_of<SpawnRank>(step(start(1, 1, 1))), SizeIs(1)) << "nothing is known of it";
}

TEST_F(CoreLaunchesTest, CopiesStayWhileTheirJobsAreUnfinished) {
  connect(1, 5);
  const auto kept = actions_of<KeepLocalCopies>(
      step(Registered{Epoch(1), seconds(1), StoreId(5), {JobId(3), JobId(4)}}));
  ASSERT_THAT(kept, SizeIs(1));
  EXPECT_EQ(kept[0].store, StoreId(5));
  EXPECT_THAT(kept[0].jobs, ElementsAre(JobId(3), JobId(4)));
  const auto dropped = actions_of<DropLocalCopies>(step(JobEnded{Epoch(1), JobId(3)}));
  ASSERT_THAT(dropped, SizeIs(1));
  EXPECT_EQ(dropped[0].job, JobId(3));
  EXPECT_THAT(actions_of<DropLocalCopies>(step(JobEnded{Epoch(0), JobId(4)})), IsEmpty())
      << "stale";
  const auto spawned = actions_of<SpawnRank>(step(start(4, 1, 1)));
  ASSERT_THAT(spawned, SizeIs(1));
  EXPECT_EQ(spawned[0].store, StoreId(5));
}

}  // namespace
}  // namespace muster::worker
