// A stop that comes in the middle of a step: what completed steps have made is saved, and a new process goes on from it.
#include <gmock/gmock.h>

#include <condition_variable>
#include <filesystem>
#include <functional>
#include <mutex>
#include <sstream>
#include <thread>

#include <gtest/gtest.h>

#include "tests/unit/temp_folder.h"
#include "tests/unit/trainer_core/train/train_helpers.h"
#include "trainer_core/comm/local.h"
#include "trainer_core/train.h"

namespace muster::trainer {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
namespace fs = std::filesystem;

// Rank 0 of 1 whose all-reduce of step `long_step` lasts until release(), and then has lost its peers.
class LongStepGroup : public ProcessGroup {
 public:
  LongStepGroup(std::unique_ptr<ProcessGroup> group, int64_t long_step)
      : group_(std::move(group)), long_step_(long_step) {}

  absl::Status all_reduce(Numbers data, std::string_view name) override {
    if (step_++ < long_step_) return group_->all_reduce(data, name);
    std::unique_lock lock(mutex_);
    waiting_ = true;
    changed_.notify_all();
    changed_.wait(lock, [&] { return released_; });
    return absl::UnavailableError("the peers have left");
  }

  void wait_for_the_long_step() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return waiting_; });
  }
  void release() {
    const std::lock_guard lock(mutex_);
    released_ = true;
    changed_.notify_all();
  }

  const std::string& name() const override { return group_->name(); }
  int rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }
  absl::Status all_reduce_max(Numbers data, std::string_view name) override {
    return group_->all_reduce_max(data, name);
  }
  absl::Status all_gather(ConstNumbers input, Numbers output, std::string_view name) override {
    return group_->all_gather(input, output, name);
  }
  absl::Status reduce_scatter(ConstNumbers input, Numbers output, std::string_view name) override {
    return group_->reduce_scatter(input, output, name);
  }
  absl::Status all_to_all(ConstNumbers input, Numbers output, std::string_view name) override {
    return group_->all_to_all(input, output, name);
  }
  absl::Status all_to_all_v(ConstNumbers input, std::span<const size_t> send_counts, Numbers output,
                            std::span<const size_t> receive_counts,
                            std::string_view name) override {
    return group_->all_to_all_v(input, send_counts, output, receive_counts, name);
  }
  absl::Status broadcast(Numbers data, int root, std::string_view name) override {
    return group_->broadcast(data, root, name);
  }
  absl::Status send(ConstNumbers data, int to, std::string_view name) override {
    return group_->send(data, to, name);
  }
  absl::Status recv(Numbers data, int from, std::string_view name) override {
    return group_->recv(data, from, name);
  }
  absl::Status send_recv(ConstNumbers outgoing, int to, Numbers incoming, int from,
                         std::string_view name) override {
    return group_->send_recv(outgoing, to, incoming, from, name);
  }
  absl::Status barrier(std::string_view name) override { return group_->barrier(name); }
  SentBytes sent(CollectiveKind kind) const override { return group_->sent(kind); }
  void abort() override { group_->abort(); }

 private:
  std::unique_ptr<ProcessGroup> group_;
  int64_t long_step_;
  int64_t step_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool waiting_ = false;
  bool released_ = false;
};

std::vector<ExitCode> ended_with;  // by leave(), on the thread that calls it

struct Outcome {
  std::vector<ExitCode> ended_with;
  ExitCode loop = ExitCode::kOk;
  int64_t checkpoint_step = -1;
  std::string out;
  std::string err;
};

// Trains, and leaves in the middle of step `long_step`, after `in_step`, unless the peers are seen to leave first.
enum class First { kSignalThread, kPeers };
Outcome stop_in_step(const TrainConfig& config, int64_t long_step, First first,
                     const std::function<void()>& in_step = nullptr) {
  LocalWorld world(1, std::chrono::milliseconds(60'000));
  auto page = ProgressWriter::anonymous({});
  LongStepGroup group(world.join(0, page.get(), "data"), long_step);
  StopSignals signals;
  std::ostringstream out, err;
  Outcome outcome;
  ended_with.clear();
  std::thread loop([&] {
    outcome.loop = train(config, {.group = group,
                                  .page = *page,
                                  .out = out,
                                  .err = err,
                                  .signals = signals,
                                  .threads = 1,
                                  .on_step = nullptr});
  });
  group.wait_for_the_long_step();
  signals.stop = true;
  if (in_step) in_step();
  if (first == First::kSignalThread)
    signals.leave_step([](ExitCode code) { ended_with.push_back(code); });
  group.release();
  loop.join();
  // The loop is over: nothing is left to leave.
  signals.leave_step([](ExitCode code) { ended_with.push_back(code); });
  outcome.ended_with = ended_with;
  outcome.checkpoint_step = page->page().checkpoint_step;
  outcome.out = out.str();
  outcome.err = err.str();
  return outcome;
}

class LateStop : public testing::Test {
 protected:
  TrainConfig config(const std::string& checkpoints) const {
    TrainConfig config = tiny_config(1);
    config.enable_checkpointing = true;
    config.checkpoint_directory = folder_.file(checkpoints);
    config.checkpoint_period = 5;
    return config;
  }

  std::string last_state(const std::string& checkpoints) const {
    const std::string folder = folder_.file(checkpoints) + "/20";
    return checkpoint_bytes(folder);
  }

  void expect_resumes_bit_for_bit(const std::string& checkpoints, int64_t step) {
    const RunResult whole = run(config("whole"));
    const RunResult second = run(config(checkpoints));
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

TEST_F(LateStop, SoDoesTheLoopWhenThePeersLeaveFirst) {
  const Outcome outcome = stop_in_step(config("peers"), 8, First::kPeers);
  EXPECT_EQ(outcome.loop, ExitCode::kPreempted) << outcome.err;
  EXPECT_TRUE(outcome.ended_with.empty()) << "left a loop that was over";
  EXPECT_THAT(outcome.out, HasSubstr("stopped on request: 8 of 20 steps are completed\n"));
  expect_resumes_bit_for_bit("peers", 8);
}

TEST_F(LateStop, WhatIsSavedAlreadyIsNotSavedAgain) {
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

TEST_F(LateStop, ACheckpointThatCannotBeSavedIsAFailure) {
  const Outcome outcome = stop_in_step(config("gone"), 3, First::kSignalThread, [&] {
    fs::remove_all(folder_.file("gone"));
    write_file(folder_.file("gone"), "a file in the directory's place");
  });
  EXPECT_EQ(outcome.ended_with, std::vector{ExitCode::kFailure});
  EXPECT_THAT(outcome.err, HasSubstr("checkpoint of step 3 is not saved"));
}

}  // namespace
}  // namespace muster::trainer
