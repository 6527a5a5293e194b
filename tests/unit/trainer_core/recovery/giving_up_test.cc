// Ranks that receive a request to leave while their peers do not come, or while they have nothing
// to save.
#include <gmock/gmock.h>

#include <atomic>
#include <filesystem>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/temp_folder.h"
#include "tests/unit/trainer_core/recovery/leaving_ranks.h"
#include "trainer_core/recovery/leaving.h"

namespace muster::trainer {
namespace {

using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;
namespace fs = std::filesystem;

class GivingUp : public testing::Test {
 protected:
  TrainConfig config(const std::string& checkpoints, const Degrees& degrees) const {
    return leaving_config(folder_.file(checkpoints), degrees);
  }

  TempFolder folder_;
};

// Rank 1 hangs and has no request to leave. Without a limit of rank 0's wait both would wait for
// each other.
TEST_F(GivingUp, TheOnlyRankThatIsRequestedToLeaveGivesUpAndItsExitEndsItsPeer) {
  Ranks ranks(config("alone", {1, 1, 2, 1, 1, 1, 1}));
  Moment there, shared, over;
  std::atomic<int64_t> completed{0};
  ranks.on_step[1] = [&](const StepRecord& record) { completed = record.step + 1; };
  ranks.hooks[1].before = [&](std::string_view channel) {
    if (!is_on_channel(channel, kOverlapChannel) || completed < kCompleted) return absl::OkStatus();
    there.happen();
    over.wait();
    return absl::OkStatus();
  };
  ranks.hooks[0].before = [&](std::string_view channel) {
    if (is_on_channel(channel, kLeaveChannel)) shared.happen();
    return absl::OkStatus();
  };
  std::thread first([&] { ranks.run(0); }), second([&] { ranks.run(1); });
  there.wait();
  ended_with.clear();
  EXPECT_FALSE(ranks.signals[0].give_up(note_end)) << "it waits for no other rank";
  ranks.signals[0].stop = true;
  std::thread leaving([&] { ranks.signals[0].leave_step(note_end); });
  shared.wait();
  EXPECT_TRUE(ranks.signals[0].give_up(note_end));
  over.happen();
  for (std::thread* thread : {&leaving, &first, &second}) thread->join();
  EXPECT_EQ(ended_with, std::vector{ExitCode::kPreempted});
  EXPECT_EQ(ranks.codes, (std::vector{ExitCode::kPreempted, ExitCode::kPeerLost})) << ranks.err();
  EXPECT_THAT(ranks.errs[0].str(),
              HasSubstr("rank 0: leaving: not all ranks that save with it have joined within"));
  EXPECT_FALSE(fs::exists(folder_.file("alone/2")));
}

// A save in progress is waited for: an earlier step's, and that of ranks that have met.
TEST_F(GivingUp, NoRankGivesUpDuringASave) {
  for (const bool peer_comes : {false, true}) {
    TrainConfig with = config(peer_comes ? "met" : "unmet", {1, 1, 2, 1, 1, 1, 1});
    with.async_checkpointing = true;
    with.checkpoint_period = peer_comes ? 1000 : kCompleted;
    Ranks ranks(with);
    Moment there, saves, resumes, shared, over;
    std::atomic<int64_t> completed{0};
    ranks.on_step[1] = [&](const StepRecord& record) { completed = record.step + 1; };
    ranks.hooks[1].before = [&](std::string_view channel) {
      if (!is_on_channel(channel, kOverlapChannel) || completed < kCompleted)
        return absl::OkStatus();
      there.happen();
      over.wait();
      return absl::UnavailableError("its peer has left");
    };
    ranks.hooks[0].before = [&](std::string_view channel) {
      if (is_on_channel(channel, kLeaveChannel)) shared.happen();
      // Opening the folder uses the same channel.
      if (!is_on_channel(channel, kCheckpointChannel) || completed < kCompleted)
        return absl::OkStatus();
      saves.happen();
      resumes.wait();
      return absl::OkStatus();
    };
    std::thread first([&] { ranks.run(0); }), second([&] { ranks.run(1); });
    there.wait();
    if (!peer_comes) saves.wait();  // rank 0 may still be about to complete the step
    ended_with.clear();
    std::vector<std::thread> leaving;
    for (const size_t r : {0, 1}) {
      ranks.signals[r].stop = true;
      if (r == 0 || peer_comes)
        leaving.emplace_back([&, r] { ranks.signals[r].leave_step(note_end); });
    }
    shared.wait();
    saves.wait();
    EXPECT_FALSE(ranks.signals[0].give_up(note_end)) << peer_comes;
    resumes.happen();
    while (!peer_comes && !ranks.signals[0].give_up(note_end)) std::this_thread::yield();
    for (std::thread& thread : leaving) thread.join();
    over.happen();
    first.join();
    second.join();
    EXPECT_THAT(ended_with, Each(ExitCode::kPreempted)) << ranks.err();
    EXPECT_EQ(ended_with.size(), peer_comes ? 2U : 1U) << ranks.err();
    EXPECT_TRUE(
        fs::exists(folder_.file(peer_comes ? "met/2/manifest.json" : "unmet/2/manifest.json")));
  }
}

// A rank without a save has the sums of the step. The writers may have begun the update after them,
// and need this rank for the norm of metrics_file.
TEST_F(GivingUp, ARankWithNothingToSaveStaysForTheCommitInProgress) {
  TrainConfig with = config("served", {2, 1, 2, 1, 1, 1, 1});
  with.metrics_file = folder_.file("served.jsonl");
  Ranks ranks(with);
  const auto computes = [](std::string_view channel) { return channel.find('#') == channel.npos; };
  struct Rounds {
    int64_t completed = 0;
    int of_step = 0;    // rounds of the channel with the sums, in the current step
    int in_a_step = 0;  // rounds in the step before: sums, and as many for the norm
  };
  std::vector<Rounds> rounds(4);
  for (const size_t r : {0, 2}) {
    ranks.on_step[r] = [&, r](const StepRecord& record) {
      rounds[r] = {record.step + 1, 0, rounds[r].of_step};
    };
  }
  Moment there, in_order, isolated;
  std::atomic<int> claimed{0};
  ranks.hooks[2].after = [&](std::string_view channel, const absl::Status&) {
    Rounds& mine = rounds[2];
    if (!computes(channel) || mine.completed < kCompleted)
      return void(mine.of_step += computes(channel));
    if (++mine.of_step != mine.in_a_step / 2) return;
    there.happen();
    isolated.wait();
  };
  // The commit ends only when every rank is leaving.
  for (RoundHooks& hooks : ranks.hooks)
    hooks.isolated = [&] { ++claimed == 4 ? isolated.happen() : void(); };
  ranks.hooks[0].before = [&](std::string_view channel) {
    Rounds& its = rounds[0];
    if (!computes(channel)) return absl::OkStatus();
    if (its.completed == kCompleted && its.of_step == its.in_a_step / 2) in_order.happen();
    ++its.of_step;
    return absl::OkStatus();
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 4; ++rank) threads.emplace_back([&, rank] { ranks.run(rank); });
  there.wait();
  in_order.wait();
  ended_with.clear();
  for (StopSignals& requested : ranks.signals) requested.stop = true;
  for (const size_t r : {2, 0, 1, 3})
    threads.emplace_back([&, r] { ranks.signals[r].leave_step(note_end); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(ranks.codes, Each(ExitCode::kPreempted)) << ranks.err();
  EXPECT_THAT(ended_with, Each(ExitCode::kPreempted)) << ranks.err();
  EXPECT_THAT(ranks.err(), IsEmpty());
  // Rank 2 may complete the commit before the others have begun to wait for it.
  EXPECT_TRUE(fs::exists(folder_.file("served/3/manifest.json")) ||
              fs::exists(folder_.file("served/4/manifest.json")));
}

// Peers begin a commit once they have the sums of all ranks, so a rank that leaves sends none for a
// commit that it does not make.
TEST(Leaving, NoCommitIsAnnouncedAfterTheExpectedOne) {
  for (int round = 0; round < 300; ++round) {
    Leaving leaving;
    leaving.start();
    int announced = 0, made = 0;
    std::thread loop([&] {
      while (leaving.expect_commit()) {
        ++announced;
        if (!leaving.begin_commit()) break;
        leaving.end_commit();
        ++made;
      }
    });
    leaving.wait_for_expected_commit();
    leaving.left();
    loop.join();
    ASSERT_EQ(announced, made);
  }
}

}  // namespace
}  // namespace muster::trainer
