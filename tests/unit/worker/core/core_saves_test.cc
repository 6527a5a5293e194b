// How long ranks that stop may save.
#include <gmock/gmock.h>

#include <csignal>

#include "common/progress/save_progress.h"
#include "tests/unit/worker/core/core_fixture.h"

namespace muster::worker {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

StopRanks stop_for_save(Duration grace) {
  StopRanks event = stop(1, 1, grace);
  event.waits_for_save = true;
  return event;
}

// The page of rank `rank` while it saves.
PageResults saving(int32_t rank, uint32_t total, uint32_t written) {
  RankFigures figures;
  figures.checkpoints.saving_mib = total;
  figures.checkpoints.written_mib = written;
  return {{{key(1, 1, rank), figures}}};
}

TEST_F(CoreTest, ASaveThatMakesProgressIsAwaited) {
  connect();
  start_up(start(1, 1, 2));
  step(stop_for_save(seconds(4)));
  advance(seconds(3));
  step(saving(0, 100, 1));  // rank 1 has nothing to write, and waits for rank 0
  for (uint32_t written = 2; written < 10; ++written) {
    EXPECT_THAT(actions_of<SignalRank>(advance(kSaveStallMax - milliseconds(1))), SizeIs(0))
        << written;
    step(saving(0, 100, written));
  }
  step(stop_for_save(seconds(4)));  // repeated after a reconnection
  step(saving(0, 100, 9));          // no progress
  EXPECT_THAT(actions_of<SignalRank>(advance(kSaveStallMax - milliseconds(1))), SizeIs(0));
  const ActionList actions = advance(milliseconds(1));
  EXPECT_THAT(actions_of<SignalRank>(actions), SizeIs(2));
  EXPECT_THAT(actions_of<Note>(actions)[0].text, HasSubstr("with 9 of 100 MiB saved"));
}

TEST_F(CoreTest, ASaveThatIsWrittenIsAwaitedForItsPeersAndItsEndForTheGrace) {
  connect();
  start_up(start(1, 1, 1));
  step(stop_for_save(seconds(4)));
  step(saving(0, 100, 100));
  EXPECT_THAT(actions_of<SignalRank>(advance(kSaveEndMax - milliseconds(1))), SizeIs(0));
  step(saving(0, 0, 0));
  EXPECT_THAT(actions_of<SignalRank>(advance(seconds(4) - milliseconds(1))), SizeIs(0));
  EXPECT_THAT(actions_of<SignalRank>(advance(milliseconds(1))), SizeIs(1));
}

// An upload: all is written, and the bytes that are sent are progress.
TEST_F(CoreTest, AnUploadThatMakesProgressIsAwaited) {
  connect();
  start_up(start(1, 1, 2));
  step(stop_for_save(seconds(4)));
  for (uint32_t sent = 0; sent < 10; ++sent) {
    step(saving(0, 100 + sent, 100 + sent));
    EXPECT_THAT(actions_of<SignalRank>(advance(kSaveEndMax - milliseconds(1))), SizeIs(0)) << sent;
  }
  EXPECT_THAT(actions_of<SignalRank>(advance(milliseconds(1))), SizeIs(2)) << "nothing is sent";
}

TEST_F(CoreTest, ASaveIsNotAwaitedBeyondABound) {
  connect();
  start_up(start(1, 1, 1));
  step(stop(1, 1, seconds(4)));  // the coordinator limits the time
  step(saving(0, 100, 50));
  EXPECT_THAT(actions_of<SignalRank>(advance(seconds(4))), SizeIs(1));
  step(RankReaped{key(1, 1, 0), 0, 9, 10, ""});
  start_up(start(2, 1, 1));
  step(ShutdownRequested{});  // the worker leaves
  StopRanks cancelled = stop_for_save(seconds(4));
  cancelled.job = JobId(2);
  step(cancelled);
  RankFigures figures;
  figures.checkpoints.saving_mib = 100;
  figures.checkpoints.written_mib = 50;
  advance(seconds(3));
  step(PageResults{{{key(2, 1, 0), figures}}});
  now += options().leave_grace - seconds(3);
  EXPECT_THAT(actions_of<SignalRank>(step(Tick{})), SizeIs(1));
}

TEST_F(CoreTest, AForcedStopKillsDuringASave) {
  connect();
  start_up(start(1, 1, 1));
  step(stop_for_save(seconds(4)));
  step(saving(0, 100, 50));
  const auto signals = actions_of<SignalRank>(step(stop(1, 1, Duration::zero())));
  ASSERT_THAT(signals, SizeIs(1));
  EXPECT_EQ(signals[0].signo, SIGKILL);
}

}  // namespace
}  // namespace muster::worker
