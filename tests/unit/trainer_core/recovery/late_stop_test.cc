// A stop request in the middle of a step: the completed steps are saved, and a new process resumes
// from them.
#include <gmock/gmock.h>

#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <functional>
#include <mutex>
#include <sstream>
#include <thread>

#include <gtest/gtest.h>

#include "tests/unit/temp_folder.h"
#include "tests/unit/trainer_core/recovery/leaving_ranks.h"

namespace muster::trainer {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
namespace fs = std::filesystem;

// Holds one rank's messages of step `long_step` until release(), after which the peers are lost.
// Holds only the channel of passes: saves on any thread are not held. Thread-safe.
class LongStep {
 public:
  explicit LongStep(int64_t long_step) : long_step_(long_step) {}

  // Called on the rank's loop, as its on_step.
  void complete(const StepRecord& record) { completed_ = record.step + 1; }

  // Called before each round of messages.
  absl::Status pass(std::string_view channel) {
    if (!is_on_channel(channel, kOverlapChannel) || completed_ != long_step_)
      return absl::OkStatus();
    std::unique_lock lock(mutex_);
    waiting_ = true;
    changed_.notify_all();
    changed_.wait(lock, [&] { return released_; });
    return absl::UnavailableError("the peers have left");
  }

  void wait_until_reached() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return waiting_; });
  }
  void release() {
    const std::lock_guard lock(mutex_);
    released_ = true;
    changed_.notify_all();
  }

 private:
  const int64_t long_step_;
  std::atomic<int64_t> completed_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
  bool waiting_ = false;
  bool released_ = false;
};

struct Outcome {
  std::vector<ExitCode> ended_with;
  ExitCode loop = ExitCode::kOk;
  int64_t checkpoint_step = -1;
  std::string out;
  std::string err;
};

// Trains on two ranks. The first leaves in the middle of step `long_step`, after `in_step`, unless
// its peers are seen to leave first; with kBothSignalThreads the second does, too.
enum class First { kSignalThread, kBothSignalThreads, kPeers };
Outcome stop_in_step(const TrainConfig& config, int64_t long_step, First first,
                     const std::function<void()>& in_step = nullptr) {
  LocalWorld world(2, std::chrono::milliseconds(60'000));
  auto page = ProgressWriter::anonymous({}), peers_page = ProgressWriter::anonymous({});
  LongStep step(long_step);
  std::atomic<int64_t> peers_completed{0};
  StopSignals signals, peers_signals;
  std::ostringstream out, err, peers_out;
  Outcome outcome;
  ended_with.clear();
  std::thread loop([&] {
    const RoundHooks hooks{.before = [&](std::string_view name) { return step.pass(name); }};
    ProcessGroups groups(std::make_shared<HookedTransport>(world.join(0), hooks),
                         mesh_of(config.mesh), page.get());
    outcome.loop = train(config, {.groups = groups,
                                  .page = *page,
                                  .out = out,
                                  .err = err,
                                  .signals = signals,
                                  .threads = 1,
                                  .on_step = [&](const StepRecord& r) { step.complete(r); }});
  });
  std::thread peer([&] {
    ProcessGroups groups(world.join(1), mesh_of(config.mesh), peers_page.get());
    train(config, {.groups = groups,
                   .page = *peers_page,
                   .out = peers_out,
                   .err = peers_out,
                   .signals = peers_signals,
                   .threads = 1,
                   .on_step = [&](const StepRecord& r) { peers_completed = r.step + 1; }});
  });
  step.wait_until_reached();
  signals.stop = true;
  if (in_step) in_step();
  std::thread other([&] {
    if (first != First::kBothSignalThreads) return;
    // It completes as many steps before its thread reports them.
    while (peers_completed < long_step) std::this_thread::yield();
    peers_signals.stop = true;
    peers_signals.leave_step(note_end);
  });
  if (first != First::kPeers) signals.leave_step(note_end);
  other.join();
  step.release();
  loop.join();
  peer.join();
  // The loop is over: there is nothing left to leave.
  signals.leave_step(note_end);
  outcome.ended_with = ended_with;
  outcome.checkpoint_step = page->page().checkpoint_step;
  outcome.out = out.str();
  outcome.err = err.str();
  return outcome;
}

class LateStop : public testing::Test {
 protected:
  TrainConfig config(const std::string& checkpoints) const {
    TrainConfig config = tiny_config(2);
    config.enable_checkpointing = true;
    config.checkpoint_directory = folder_.file(checkpoints);
    config.checkpoint_period = 5;
    return config;
  }

  std::string last_state(const std::string& checkpoints) const {
    const std::string folder = folder_.file(checkpoints) + "/20";
    return checkpoint_bytes(folder);
  }

  // `in` changes the config of both runs.
  void expect_resumes_bit_for_bit(
      const std::string& checkpoints, int64_t step,
      const std::function<TrainConfig(TrainConfig)>& in = [](TrainConfig same) { return same; }) {
    const RunResult whole = run(in(config("whole")));
    const RunResult second = run(in(config(checkpoints)));
    ASSERT_EQ(second.codes[0], ExitCode::kOk) << second.err;
    ASSERT_EQ(second.records[0].front().step, step);
    for (size_t i = 0; i < second.records[0].size(); ++i)
      EXPECT_EQ(second.losses()[i], whole.losses()[i + static_cast<size_t>(step)]);
    ASSERT_FALSE(last_state("whole").empty());
    EXPECT_EQ(last_state(checkpoints), last_state("whole"));
  }

  TempFolder folder_;
};

TEST_F(LateStop, TheSignalThreadSavesTheLastCompletedStep) {
  const Outcome outcome = stop_in_step(config("parts"), 8, First::kSignalThread);
  EXPECT_EQ(outcome.ended_with, std::vector{ExitCode::kPreempted}) << outcome.err;
  EXPECT_THAT(outcome.out,
              ContainsRegex("saved checkpoint " + folder_.file("parts") + "/8: [^\n]*\n" +
                            "stopped on request: 8 of 20 steps are completed\n"));
  EXPECT_EQ(outcome.checkpoint_step, 8);
  expect_resumes_bit_for_bit("parts", 8);
}

// Ranks that share the model save it together, each on its signal thread, while both hang in the
// step.
TEST_F(LateStop, SignalThreadsSaveTheirShards) {
  const Outcome outcome = stop_in_step(along_fsdp(config("shards")), 8, First::kBothSignalThreads);
  EXPECT_EQ(outcome.ended_with, (std::vector{ExitCode::kPreempted, ExitCode::kPreempted}))
      << outcome.err;
  EXPECT_EQ(outcome.checkpoint_step, 8);
  EXPECT_TRUE(fs::exists(folder_.file("shards/8/model-00001-00000.safetensors")));
  expect_resumes_bit_for_bit("shards", 8, along_fsdp);
}

TEST_F(LateStop, TheLoopSavesItIfThePeersLeaveFirst) {
  const Outcome outcome = stop_in_step(config("peers"), 8, First::kPeers);
  EXPECT_EQ(outcome.loop, ExitCode::kPreempted) << outcome.err;
  EXPECT_TRUE(outcome.ended_with.empty()) << "left a loop that was over";
  EXPECT_THAT(outcome.out, HasSubstr("stopped on request: 8 of 20 steps are completed\n"));
  expect_resumes_bit_for_bit("peers", 8);
}

TEST_F(LateStop, ASavedStateIsNotSavedAgain) {
  const Outcome outcome = stop_in_step(config("saved"), 5, First::kSignalThread);
  EXPECT_EQ(outcome.ended_with, std::vector{ExitCode::kPreempted}) << outcome.err;
  EXPECT_THAT(outcome.out, ContainsRegex("/5: [^\n]*\nstopped on request: 5 of 20 steps"));
  const std::string line = "saved checkpoint";
  EXPECT_EQ(outcome.out.find(line), outcome.out.rfind(line)) << outcome.out;
}

TEST_F(LateStop, BeforeTheFirstStepNothingIsSaved) {
  const Outcome outcome = stop_in_step(config("none"), 0, First::kSignalThread);
  EXPECT_EQ(outcome.ended_with, std::vector{ExitCode::kPreempted}) << outcome.err;
  EXPECT_FALSE(fs::exists(folder_.file("none/0")));
}

TEST_F(LateStop, ADirectoryThatIsGoneIsStorageThatIsAway) {
  const Outcome outcome = stop_in_step(config("gone"), 3, First::kSignalThread, [&] {
    fs::remove_all(folder_.file("gone"));
    write_file(folder_.file("gone"), "a file in the directory's place");
  });
  EXPECT_EQ(outcome.ended_with, std::vector{ExitCode::kStorageAway});
  EXPECT_THAT(outcome.err, HasSubstr("checkpoint of step 3 is not saved"));
}

}  // namespace
}  // namespace muster::trainer
