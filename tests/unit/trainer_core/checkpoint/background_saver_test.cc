#include "trainer_core/checkpoint/background_saver.h"

#include <gmock/gmock.h>

#include <atomic>

#include <gtest/gtest.h>

#include "tests/unit/temp_folder.h"
#include "tests/unit/trainer_core/checkpoint/checkpoint_helpers.h"

namespace muster::trainer {
namespace {

using testing::HasSubstr;

// A saver, and the replica that trains on beside it.
class BackgroundSave : public testing::Test {
 protected:
  BackgroundSaver saver() {
    return {store_, layout(), staging_.blocks(), [this](const SaveOutcome&) { ++ended_; }};
  }
  void expect_saved(int64_t step, const State& expected) {
    State restored(0);
    const auto status = restore_checkpoint(store_.folder(step), layout(), restored.blocks());
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_TRUE(restored == expected);
  }

  TempFolder folder_;
  CheckpointStore store_{folder_.file("ckpt"), -1};
  State staging_{0};
  std::atomic<int> ended_{0};
};

TEST_F(BackgroundSave, SavesTheStateAtBegin) {
  ASSERT_TRUE(store_.prepare().ok());
  BackgroundSaver background = saver();
  EXPECT_FALSE(background.finish().has_value()) << "nothing was begun";
  for (int64_t step = 1; step <= 20; ++step) {
    State live(static_cast<float>(step));
    background.begin(info_of(step), live.blocks());
    background.wait_staged();
    std::ranges::fill(live.params, -1.0F);
    std::ranges::fill(live.state, -1.0F);
    const auto outcome = background.finish();
    ASSERT_TRUE(outcome.has_value());
    ASSERT_TRUE(outcome->status.ok()) << outcome->status;
    EXPECT_EQ(outcome->step, step);
    EXPECT_EQ(ended_, step);
    EXPECT_FALSE(background.take().has_value()) << "an outcome is returned once";
    expect_saved(step, State(static_cast<float>(step)));
  }
}

TEST_F(BackgroundSave, LeavingWaitsForTheSaveInFlight) {
  ASSERT_TRUE(store_.prepare().ok());
  State live(7);
  {
    BackgroundSaver background = saver();
    background.begin(info_of(7), live.blocks());
  }
  EXPECT_EQ(ended_, 1);
  expect_saved(7, State(7));
}

TEST_F(BackgroundSave, AnErrorIsAnOutcomeAndTheNextSaveWorks) {
  write_file(folder_.file("ckpt"), "a file in the directory's place");
  BackgroundSaver background = saver();
  State live(1);
  background.begin(info_of(1), live.blocks());
  const auto failed = background.finish();
  ASSERT_TRUE(failed.has_value());
  EXPECT_THAT(std::string(failed->status.message()),
              testing::AllOf(HasSubstr("checkpoint of step 1 is not saved: "),
                             HasSubstr(folder_.file("ckpt"))));
  std::filesystem::remove(folder_.file("ckpt"));
  ASSERT_TRUE(store_.prepare().ok());
  background.begin(info_of(2), live.blocks());
  const auto saved = background.finish();
  ASSERT_TRUE(saved.has_value() && saved->status.ok()) << saved->status;
  expect_saved(2, State(1));
}

}  // namespace
}  // namespace muster::trainer
