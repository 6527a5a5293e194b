// Ranks that receive a request to leave at any point: they save the state of one step, the same as
// in an uninterrupted run.
#include "trainer_core/recovery/leaving.h"

#include <gmock/gmock.h>

#include <atomic>
#include <filesystem>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/temp_folder.h"
#include "tests/unit/trainer_core/recovery/leaving_ranks.h"
#include "trainer_core/rank/training_plan.h"

namespace muster::trainer {
namespace {

using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;
namespace fs = std::filesystem;

struct LeavingOutcome {
  bool reached = false;  // the slow rank's place
  int64_t at = 0;        // steps that the slow rank had completed there
  std::vector<ExitCode> codes;
  std::vector<ExitCode> ended_with;
  std::string out, err;
};

// Rank `slow` stops before its `place`th round of messages after kCompleted steps. Then the signal
// threads of all ranks leave, and it continues when a rank has sent its commit: itself if it saves.
LeavingOutcome leave_at(const TrainConfig& config, int slow, int place) {
  Ranks ranks(config);
  const auto size = static_cast<size_t>(ranks.mesh.ranks());
  const bool slow_saves = is_checkpoint_writer(ranks.mesh, slow);
  Moment there, reported;
  std::atomic<int64_t> completed{0};
  std::atomic<int> rounds{0};
  LeavingOutcome outcome;
  for (size_t r = 0; r < size; ++r) {
    const bool is_slow = static_cast<int>(r) == slow;
    ranks.hooks[r].before = [&, is_slow](std::string_view channel) {
      if (is_on_channel(channel, kLeaveChannel) && (is_slow || !slow_saves)) reported.happen();
      const bool counts = is_slow && completed >= kCompleted &&
                          !is_on_channel(channel, kLeaveChannel) &&
                          !is_on_channel(channel, kCheckpointChannel);
      if (!counts || rounds++ != place) return absl::OkStatus();
      outcome.reached = true;
      outcome.at = completed;
      there.happen();
      reported.wait();
      return absl::OkStatus();
    };
  }
  // Other ranks may be about to complete a step that the slow one has completed.
  std::vector<std::vector<Moment>> steps_of(size);
  for (size_t r = 0; r < size; ++r) {
    steps_of[r] = std::vector<Moment>(static_cast<size_t>(config.steps));
    ranks.on_step[r] = [&, r](const StepRecord& record) {
      if (static_cast<int>(r) == slow) completed = record.step + 1;
      steps_of[r][static_cast<size_t>(record.step)].happen();
    };
  }
  std::vector<std::thread> loops, signals;
  for (size_t r = 0; r < size; ++r) loops.emplace_back([&, r] { ranks.run(static_cast<int>(r)); });
  there.wait();
  for (std::vector<Moment>& steps : steps_of) steps[static_cast<size_t>(outcome.at - 1)].wait();
  ended_with.clear();
  for (StopSignals& requested : ranks.signals) requested.stop = true;
  // Ranks that do not save leave later: stop_signals.h.
  for (const bool saves : {true, false}) {
    for (size_t r = 0; r < size; ++r) {
      if (is_checkpoint_writer(ranks.mesh, static_cast<int>(r)) == saves)
        signals.emplace_back([&, r] { ranks.signals[r].leave_step(note_end); });
    }
    for (std::thread& thread : signals) thread.join();
    signals.clear();
  }
  for (std::thread& thread : loops) thread.join();
  outcome.codes = ranks.codes;
  outcome.ended_with = ended_with;
  outcome.out = ranks.out.str();
  outcome.err = ranks.err();
  return outcome;
}

class LeaveTogether : public testing::Test {
 protected:
  TrainConfig config(const std::string& checkpoints, const Degrees& degrees) const {
    return leaving_config(folder_.file(checkpoints), degrees);
  }

  // Stops rank `slow` at every `stride`-th place of a step and of a part of the next one.
  void expect_one_state_everywhere(TrainConfig (*change)(TrainConfig), const Degrees& degrees,
                                   int slow, int stride = 1) {
    TrainConfig whole = change(config("whole", degrees));
    whole.checkpoint_period = 1;
    ASSERT_THAT(run(whole).codes, Each(ExitCode::kOk));
    int behind = 0;
    for (int place = 0; behind < 3; place += stride) {
      const std::string name = "at" + std::to_string(slow) + "-" + std::to_string(place);
      const LeavingOutcome outcome = leave_at(change(config(name, degrees)), slow, place);
      ASSERT_THAT(outcome.codes, Each(ExitCode::kPreempted)) << name << ": " << outcome.err;
      ASSERT_THAT(outcome.ended_with, Each(ExitCode::kPreempted)) << name << outcome.err;
      signal_threads_ += outcome.ended_with.size();
      ASSERT_THAT(outcome.err, IsEmpty()) << name;
      std::vector<std::string> saved;
      for (const auto& entry : fs::directory_iterator(folder_.file(name)))
        if (entry.is_directory()) saved.push_back(entry.path().filename());
      ASSERT_EQ(saved.size(), 1U) << name;
      const int64_t step = std::stoll(saved[0]);
      // Others may be a step ahead, and another one may end for them. The number of rounds of a
      // step depends on which channels are ahead.
      ASSERT_GE(step, outcome.at) << name;
      ASSERT_LE(step, outcome.at + 2) << name;
      ASSERT_EQ(checkpoint_bytes(folder_.file(name + "/" + saved[0])),
                checkpoint_bytes(folder_.file("whole/" + saved[0])))
          << name;
      steps_saved_.push_back(step);
      if (outcome.at > kCompleted) ++behind;
    }
    fs::remove_all(folder_.file("whole"));
    EXPECT_GT(signal_threads_, 0U) << "no rank left in a step";
    // The ranks were on both sides of a step's end.
    EXPECT_THAT(steps_saved_, testing::Contains(kCompleted));
    EXPECT_THAT(steps_saved_, testing::Contains(kCompleted + 1));
  }

  TempFolder folder_;
  std::vector<int64_t> steps_saved_;
  size_t signal_threads_ = 0;  // ranks whose signal thread left for them
};

// Adafactor and the norm of metrics_file have collectives within an update.
TEST_F(LeaveTogether, OneStateIsSavedWhereverARankStops) {
  const auto sums = [](TrainConfig config) {
    config.optimizer.type = OptimizerType::kAdafactor;
    config.metrics_file = config.checkpoint_directory + ".jsonl";
    return config;
  };
  expect_one_state_everywhere(sums, {1, 1, 2, 1, 1, 1, 1}, 0);
  expect_one_state_everywhere(sums, {1, 1, 2, 1, 1, 1, 1}, 1, /*stride=*/3);
}

// Rank 2 has nothing to save, and the others need it for their steps.
TEST_F(LeaveTogether, WithReplicas) {
  const auto same = [](TrainConfig config) { return config; };
  expect_one_state_everywhere(same, {2, 1, 2, 1, 1, 1, 1}, 2, /*stride=*/2);
}

// The passes of stages have channels of their own: on a mesh of one axis all groups have the same
// members.
TEST_F(LeaveTogether, WithStages) {
  const auto two_layers = [](TrainConfig config) {
    config.model.num_layers = 2;
    config.pipeline_microbatches = 2;
    return config;
  };
  expect_one_state_everywhere(two_layers, {1, 2, 1, 1, 1, 1, 1}, 0, /*stride=*/2);
}
TEST_F(LeaveTogether, WithARing) {
  const auto same = [](TrainConfig config) { return config; };
  expect_one_state_everywhere(same, {1, 1, 1, 1, 2, 1, 1}, 1, /*stride=*/3);
}

// A rank that has nothing to save leaves while the others save; these wait for it in a pass.
TEST_F(LeaveTogether, ARankWithNothingToSaveBreaksNoSave) {
  Ranks ranks(config("kept", {2, 1, 2, 1, 1, 1, 1}));
  Moment there, gone, noticed;
  std::atomic<int64_t> completed{0};
  ranks.on_step[2] = [&](const StepRecord& record) { completed = record.step + 1; };
  // Rank 2 may be ahead of the ranks that save, which must be in the next pass when they stop.
  Moment ready[2];
  std::atomic<bool> has_completed[2]{};
  for (const size_t r : {0, 1}) {
    ranks.on_step[r] = [&has_completed, r](const StepRecord& record) {
      if (record.step + 1 >= kCompleted) has_completed[r] = true;
    };
    ranks.hooks[r].before = [&ready, &has_completed, r](std::string_view channel) {
      if (is_on_channel(channel, kOverlapChannel) && has_completed[r]) ready[r].happen();
      return absl::OkStatus();
    };
  }
  ranks.hooks[2].before = [&](std::string_view channel) {
    if (!is_on_channel(channel, kOverlapChannel) || completed < kCompleted) return absl::OkStatus();
    there.happen();
    gone.wait();
    return absl::UnavailableError("this rank has left");
  };
  ranks.hooks[0].before = [&, pass = ranks.hooks[0].before](std::string_view channel) {
    if (!is_on_channel(channel, kCheckpointChannel) || ranks.signals[0].stop == false)
      return pass(channel);
    gone.happen();
    noticed.wait();
    return absl::OkStatus();
  };
  // Rank 0 stops in a round with rank 2, rank 1 where it waits for rank 3, which does the same.
  for (const size_t r : {0, 1}) {
    ranks.hooks[r].after = [&](std::string_view channel, const absl::Status& status) {
      if (is_on_channel(channel, kOverlapChannel) && !status.ok()) noticed.happen();
    };
  }
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 4; ++rank) threads.emplace_back([&, rank] { ranks.run(rank); });
  for (Moment* moment : {&there, &ready[0], &ready[1]}) moment->wait();
  ended_with.clear();
  ranks.signals[0].stop = ranks.signals[1].stop = true;
  for (const size_t r : {0, 1})
    threads.emplace_back([&, r] { ranks.signals[r].leave_step(note_end); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ended_with, (std::vector{ExitCode::kPreempted, ExitCode::kPreempted})) << ranks.err();
  EXPECT_THAT(ranks.out.str(), HasSubstr("stopped on request: 2 of 8 steps are completed"));
  EXPECT_TRUE(fs::exists(folder_.file("kept/2/manifest.json")));
}

}  // namespace
}  // namespace muster::trainer
