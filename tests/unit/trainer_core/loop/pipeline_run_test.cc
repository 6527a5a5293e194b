// Whole runs of pipelines: evaluation, checkpoints, and a loss that is not finite.
#include <gmock/gmock.h>

#include <filesystem>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

#include "tests/unit/temp_folder.h"
#include "tests/unit/trainer_core/train_helpers.h"
#include "trainer_core/base/train_mesh.h"

namespace muster::trainer {
namespace {

using testing::Each;
using testing::HasSubstr;
namespace fs = std::filesystem;

struct Stages {
  int32_t stages = 1;
  int32_t chunks = 1;
  int32_t micro_batches = 1;
  int32_t fsdp = 1;
};

class PipelineRun : public testing::Test {
 protected:
  void SetUp() override { make_text_dataset(folder_.path()); }

  // Packed documents, a tied embedding, dropout.
  TrainConfig config(const std::string& name, const Stages& shape = {}) const {
    TrainConfig config = tiny_config(1);
    config.model.num_layers = 4;
    config.model.vocab_size = kTextVocab;
    config.model.dropout_rate = 0.1;
    config.model.logits_via_embedding = true;
    config.mesh.ici[static_cast<size_t>(MeshAxis::kPipeline)] = shape.stages;
    config.mesh.ici[static_cast<size_t>(MeshAxis::kFsdp)] = shape.fsdp;
    config.pipeline_repeats = shape.chunks;
    config.pipeline_microbatches = shape.micro_batches;
    config.per_device_batch_size /= shape.fsdp;
    config.dataset_type = DatasetType::kShards;
    config.dataset_path = folder_.file("data");
    config.enable_checkpointing = true;
    config.checkpoint_directory = folder_.file(name);
    config.checkpoint_period = 5;
    config.eval.interval = 5;
    config.eval.steps = 3;
    config.eval.holdout_fraction = 0.1;
    config.eval.per_device_batch_size = 6 / shape.fsdp;  // not a multiple of a micro-batch
    return config;
  }

  TempFolder folder_;
};

// On its own mesh bit for bit; on others the loss curve continues.
TEST_F(PipelineRun, ResumesFromItsCheckpointsOnAnyMesh) {
  const RunResult whole = run(config("whole"));
  ASSERT_THAT(whole.codes, Each(ExitCode::kOk)) << whole.err;
  ASSERT_EQ(whole.evaluations[0].size(), 4U);
  int64_t done = 0;
  std::string from;
  for (const Stages& shape : {Stages{2, 2, 4}, Stages{4, 1, 2}, Stages{1}, Stages{2, 1, 2, 2}}) {
    const std::string name = absl::StrCat("part", done);
    if (done > 0) {
      fs::create_directories(folder_.file(name));
      fs::copy(from, folder_.file(absl::StrCat(name, "/", done)), fs::copy_options::recursive);
    }
    TrainConfig part = config(name, shape);
    ASSERT_TRUE(validate(part).ok()) << validate(part);
    part.steps = done + 5;
    const RunResult result = run(part);
    ASSERT_THAT(result.codes, Each(ExitCode::kOk)) << result.err;
    ASSERT_EQ(result.losses().size(), 5U);
    for (size_t i = 0; i < 5; ++i) {
      EXPECT_NEAR(result.losses()[i] / whole.losses()[i + static_cast<size_t>(done)], 1, 1e-5)
          << shape.stages << " stages, step " << done + static_cast<int64_t>(i);
    }
    const EvalRecord& ours = result.evaluations[0].at(0);
    const EvalRecord& theirs = whole.evaluations[0].at(static_cast<size_t>(done) / 5);
    EXPECT_EQ(ours.total_weights, theirs.total_weights);
    EXPECT_NEAR(ours.loss / theirs.loss, 1, 1e-5) << shape.stages << " stages";
    done += 5;
    from = folder_.file(absl::StrCat(name, "/", done));
  }
}

TEST_F(PipelineRun, ResumesBitForBit) {
  const Stages shape{2, 2, 2};
  const RunResult whole = run(config("whole", shape));
  ASSERT_THAT(whole.codes, Each(ExitCode::kOk)) << whole.err;
  TrainConfig short_run = config("parts", shape);
  short_run.steps = 10;
  ASSERT_THAT(run(short_run).codes, Each(ExitCode::kOk));
  const RunResult second = run(config("parts", shape));
  ASSERT_THAT(second.codes, Each(ExitCode::kOk)) << second.err;
  const std::vector<double> losses = whole.losses();
  EXPECT_EQ(second.losses(), std::vector<double>(losses.begin() + 10, losses.end()));
  EXPECT_EQ(checkpoint_bytes(folder_.file("whole/20")), checkpoint_bytes(folder_.file("parts/20")));
}

// All stages search for the culprit together, and no stage waits for another in vain.
TEST_F(PipelineRun, ALossThatIsNotFiniteIsFound) {
  TrainConfig config = this->config("bad", {2, 1, 2});
  config.enable_checkpointing = false;
  config.optimizer.warmup_steps = 0;
  config.optimizer.learning_rate = 1e30;
  config.optimizer.clipping_threshold = 0;
  const RunResult result = run(config);
  EXPECT_THAT(result.codes, Each(ExitCode::kNotFinite)) << result.err;
  EXPECT_THAT(result.err, HasSubstr("rank 0: step "));
  EXPECT_THAT(result.err, HasSubstr("the first tensor that is not finite is "));
}

}  // namespace
}  // namespace muster::trainer
