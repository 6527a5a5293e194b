// A step of k micro-batches of b sequences equals one of k b.
#include <gmock/gmock.h>

#include <cmath>
#include <span>
#include <string>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

#include "tests/unit/temp_folder.h"
#include "tests/unit/trainer_core/train_helpers.h"
#include "trainer_core/checkpoint/checkpoint.h"
#include "trainer_core/checkpoint/safetensors.h"

namespace muster::trainer {
namespace {

using testing::Each;

class AccumulationTest : public testing::Test {
 protected:
  void SetUp() override { make_text_dataset(folder_.path()); }

  // 8 sequences per step.
  RunResult run_with(int ranks, int micro_batches, const std::string& checkpoints = "",
                     const QuantizationConfig& quantization = {}) const {
    TrainConfig config = tiny_config(ranks);
    config.model.quantization = quantization;
    if (quantization.enabled())
      config.optimizer.learning_rate = 1e-9;  // so that steps differ only by their data
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

TEST_F(AccumulationTest, EqualsTheLargeBatch) {
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
      // In later steps the parameters differ in their last bits.
      const double tolerance = i == 0 ? 1e-6 : 1e-5;
      EXPECT_NEAR(record.raw_grad_norm, expected.raw_grad_norm, tolerance * expected.raw_grad_norm)
          << ranks << micro_batches << i;
      EXPECT_EQ(record.total_weights, expected.total_weights);
      EXPECT_GT(record.total_weights, 8 * 15) << "documents are longer than a sequence";
      EXPECT_EQ(record.tokens_per_device, 8 * 16 / ranks);
      EXPECT_DOUBLE_EQ(record.tflops_per_device * ranks, expected.tflops_per_device);
    }
  }
}

// The amax of a step is the maximum over all ranks and micro-batches, which have different samples.
TEST_F(AccumulationTest, HasTheScalesOfTheLargeBatch) {
  const QuantizationConfig fp8{.type = QuantizationType::kFp8Delayed, .amax_history_length = 5};
  const auto scaling = [&](int ranks, int micro_batches) {
    const std::string name = absl::StrCat("r", ranks, "m", micro_batches);
    EXPECT_THAT(run_with(ranks, micro_batches, name, fp8).codes, Each(ExitCode::kOk));
    const auto file =
        SafetensorsFile::open(folder_.file(name + "/6/model-00000-00000.safetensors"));
    EXPECT_TRUE(file.ok()) << file.status();
    std::vector<float> all;
    for (const auto& [tensor, entry] : (*file)->tensors()) {
      if (!tensor.ends_with("_scale") && !tensor.ends_with("_amax_history")) continue;
      const size_t begin = all.size();
      all.resize(begin + static_cast<size_t>(entry.shape[0]));
      EXPECT_TRUE((*file)->read(entry, std::span(all).subspan(begin)).ok());
    }
    return all;
  };
  const std::vector<float> whole = scaling(1, 1);
  ASSERT_EQ(whole.size(), 2U * 4 * 3 * (1 + 5));
  for (const auto& [ranks, micro_batches] : {std::pair(1, 4), std::pair(2, 1), std::pair(4, 2)}) {
    const std::vector<float> parts = scaling(ranks, micro_batches);
    ASSERT_EQ(parts.size(), whole.size());
    for (size_t i = 0; i < whole.size(); ++i) {
      EXPECT_GT(whole[i], 0);
      EXPECT_NEAR(parts[i] / whole[i], 1, 1e-3) << ranks << micro_batches << " " << i;
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
