#include "cli/jobs/checkpoint_outcome.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/unit/temp_folder.h"

namespace muster::cli {
namespace {

using ::testing::HasSubstr;

constexpr CheckpointRequest kRequest = {.attempt = 2, .after_step = 100, .failed = 0};

class CheckpointOutcome : public ::testing::Test {
 protected:
  v1::Job job(v1::JobState state, uint32_t attempt, bool local_copies = false) {
    v1::Job made;
    made.set_id(7);
    made.set_state(state);
    made.set_attempt(attempt);
    made.set_reason("a reason");
    made.mutable_spec()->set_train_config_json(nlohmann::json{
        {"checkpoint_directory", checkpoints()},
        {"enable_emergency_checkpoint", local_copies},
        {"local_checkpoint_period",
         local_copies ? 1 : 0}}.dump());
    return made;
  }

  std::string checkpoints() const { return folder_.path() + "/checkpoints"; }

  void save(int64_t step, bool complete = true) {
    const auto folder = std::filesystem::path(checkpoints()) / std::to_string(step);
    std::filesystem::create_directories(folder);
    if (complete) std::ofstream(folder / "manifest.json") << nlohmann::json{{"step", step}};
  }

  TempFolder folder_;
};

// Newest first: attempts 4 and 3, with the steps from which they resumed.
v1::GetJobHistoryResponse resumed_from(int64_t third, int64_t fourth = -1) {
  v1::GetJobHistoryResponse history;
  for (const auto& [attempt, step] : {std::pair(4U, fourth), std::pair(3U, third)}) {
    v1::JobAttempt& one = *history.add_attempts();
    one.set_attempt(attempt);
    one.set_first_step(step);
  }
  return history;
}

TEST_F(CheckpointOutcome, IsTheStepThatTheAttemptReports) {
  v1::Job made = job(v1::RUNNING, 2);
  made.add_ranks()->set_checkpoint_step(100);
  EXPECT_EQ(checkpoint_outcome(made, kRequest, {}).value(), std::nullopt);
  made.mutable_ranks(0)->set_checkpoint_step(101);
  EXPECT_EQ(checkpoint_outcome(made, kRequest, {}).value(), 101);
}

TEST_F(CheckpointOutcome, IsTheStepFromWhichALaterAttemptResumes) {
  EXPECT_EQ(checkpoint_outcome(job(v1::RUNNING, 3), kRequest, resumed_from(101)).value(), 101);
  // The next attempt ended before it had loaded anything.
  EXPECT_EQ(checkpoint_outcome(job(v1::RUNNING, 4), kRequest, resumed_from(-1, 102)).value(), 102);
  EXPECT_EQ(checkpoint_outcome(job(v1::QUEUED, 4), kRequest, resumed_from(-1)).value(),
            std::nullopt);
  const auto lost = checkpoint_outcome(job(v1::RUNNING, 4), kRequest, resumed_from(90, 120));
  EXPECT_TRUE(absl::IsAborted(lost.status()));
  EXPECT_THAT(lost.status().message(), HasSubstr("resumed from step 90"));
}

TEST_F(CheckpointOutcome, AStepOfALocalCopyIsNoCheckpointInTheFolder) {
  const v1::Job made = job(v1::RUNNING, 3, /*local_copies=*/true);
  save(103, /*complete=*/false);
  const auto unknown = checkpoint_outcome(made, kRequest, resumed_from(103));
  EXPECT_TRUE(absl::IsUnknown(unknown.status()));
  EXPECT_THAT(unknown.status().message(), HasSubstr("resumed from step 103, which may be a copy"));
  save(101);
  EXPECT_EQ(checkpoint_outcome(made, kRequest, resumed_from(103)).value(), 101);
  EXPECT_EQ(checkpoint_folder(made, 101), checkpoints() + "/101");
}

TEST_F(CheckpointOutcome, OfAJobThatHasEndedIsInTheFolderOrUnknown) {
  save(100);
  const auto unknown = checkpoint_outcome(job(v1::SUCCEEDED, 2), kRequest, {});
  EXPECT_TRUE(absl::IsUnknown(unknown.status()));
  EXPECT_THAT(unknown.status().message(), HasSubstr("it has ended: a reason"));
  save(108);
  save(104);
  EXPECT_EQ(checkpoint_outcome(job(v1::SUCCEEDED, 2), kRequest, {}).value(), 104);
}

}  // namespace
}  // namespace muster::cli
