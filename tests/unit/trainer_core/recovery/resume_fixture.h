// A small training on text that is stopped and resumed.
#pragma once

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/temp_folder.h"
#include "tests/unit/trainer_core/train_helpers.h"

namespace muster::trainer {

class Resume : public testing::Test {
 protected:
  void SetUp() override { make_text_dataset(folder_.path()); }

  TrainConfig config(const std::string& checkpoints, int ranks = 2) const {
    TrainConfig config = tiny_config(ranks);
    config.model.vocab_size = kTextVocab;
    config.model.dropout_rate = 0.1;
    config.dataset_type = DatasetType::kShards;
    config.dataset_path = folder_.file("data");
    config.tokenizer_path = folder_.file("t.model");
    config.enable_checkpointing = true;
    config.checkpoint_directory = folder_.file(checkpoints);
    config.checkpoint_period = 5;
    return config;
  }

  std::string model_bytes(const std::string& checkpoints, int64_t step) const {
    const std::string folder = folder_.file(checkpoints) + "/" + std::to_string(step);
    return checkpoint_bytes(folder);
  }

  // `configured(name)` is a run whose checkpoints are in that folder. Checks that a run that is
  // interrupted and resumed ends like one that is not.
  template <class Configured>
  void expect_resumes(const Configured& configured) {
    const RunResult whole = run(configured("whole"));
    ASSERT_THAT(whole.codes, testing::Each(ExitCode::kOk)) << whole.err;
    TrainConfig short_run = configured("parts");
    short_run.steps = 10;
    ASSERT_THAT(run(short_run).codes, testing::Each(ExitCode::kOk));
    const RunResult second = run(configured("parts"));
    ASSERT_THAT(second.codes, testing::Each(ExitCode::kOk)) << second.err;
    const std::vector<double> losses = whole.losses();
    EXPECT_EQ(second.losses(), std::vector<double>(losses.begin() + 10, losses.end()));
    EXPECT_EQ(checkpoint_bytes(configured("whole").checkpoint_directory + "/20"),
              checkpoint_bytes(configured("parts").checkpoint_directory + "/20"));
  }

  TempFolder folder_;
};

}  // namespace muster::trainer
