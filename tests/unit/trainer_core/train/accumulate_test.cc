// A step of k micro-batches of b sequences is one of k b.
#include <gmock/gmock.h>

#include <cmath>

#include <gtest/gtest.h>

#include "tests/unit/temp_folder.h"
#include "tests/unit/trainer_core/train/train_helpers.h"
#include "trainer_core/checkpoint/checkpoint.h"

namespace muster::trainer {
namespace {

using testing::Each;

class AccumulationTest : public testing::Test {
 protected:
  void SetUp() override { make_text_dataset(folder_.path()); }

  // 8 sequences per step.
  RunResult run_with(int ranks, int micro_batches, const std::string& checkpoints = "") const {
    TrainConfig config = tiny_config(ranks);
    config.model.vocab_size = kTextVocab;
    config.dataset_type = DatasetType::kShards;
    config.dataset_path = folder_.file("data");
    config.steps = 6;
    config.per_device_batch_size = 8 / ranks / micro_batches;
    config.gradient_accumulation_steps = micro_batches;
    config.enable_checkpointing = !checkpoints.empty();
    config.checkpoint_directory = folder_.file(checkpoints);
    return run(config);
  }

  TempFolder folder_;
};

TEST_F(AccumulationTest, IsTheLargeBatch) {
  const RunResult whole = run_with(1, 1);
  ASSERT_THAT(whole.codes, Each(ExitCode::kOk)) << whole.err;
  for (const auto& [ranks, micro_batches] :
       {std::pair(1, 2), std::pair(1, 8), std::pair(2, 2), std::pair(2, 4), std::pair(4, 2)}) {
    const RunResult parts = run_with(ranks, micro_batches);
    ASSERT_THAT(parts.codes, Each(ExitCode::kOk)) << parts.err;
    for (size_t i = 0; i < whole.records[0].size(); ++i) {
      const StepRecord& expected = whole.records[0][i];
      const StepRecord& record = parts.records[0][i];
      EXPECT_NEAR(record.loss, expected.loss, 1e-6 * expected.loss) << ranks << micro_batches << i;
      // Later steps see parameters that differ in their last bits.
      const double tolerance = i == 0 ? 1e-6 : 1e-5;
      EXPECT_NEAR(record.raw_grad_norm, expected.raw_grad_norm, tolerance * expected.raw_grad_norm)
          << ranks << micro_batches << i;
      EXPECT_EQ(record.total_weights, 8 * 16);
      EXPECT_EQ(record.tokens_per_device, 8 * 16 / ranks);
      EXPECT_DOUBLE_EQ(record.tflops_per_device * ranks, expected.tflops_per_device);
    }
  }
}

TEST_F(AccumulationTest, CheckpointsCountEverySample) {
  ASSERT_THAT(run_with(2, 2, "ckpt").codes, Each(ExitCode::kOk));
  const auto info = verify_checkpoint(folder_.file("ckpt/6"), /*checksums=*/true);
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->samples, 6U * 8);
}

}  // namespace
}  // namespace muster::trainer
