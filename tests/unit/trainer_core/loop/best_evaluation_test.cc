// Early stopping and the checkpoint of the best evaluation, with restarts.
#include <gmock/gmock.h>

#include <filesystem>
#include <limits>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

#include "tests/unit/temp_folder.h"
#include "tests/unit/trainer_core/train_helpers.h"
#include "trainer_core/checkpoint/checkpoint.h"
#include "trainer_core/checkpoint/find_checkpoint.h"
#include "trainer_core/checkpoint/parameter_source.h"

namespace muster::trainer {
namespace {

using testing::Each;
using testing::HasSubstr;

constexpr int64_t kInterval = 4;
constexpr int64_t kPatience = 2;
constexpr int kRestartsMax = 10;

class BestEvaluation : public testing::Test {
 protected:
  void SetUp() override { make_text_dataset(folder_.path()); }

  // The rate rises until the training diverges, so the best evaluation is in the middle.
  TrainConfig config(int ranks, const std::string& name) const {
    TrainConfig config = tiny_config(ranks);
    config.model.vocab_size = kTextVocab;
    config.max_target_length = 32;
    config.dataset_type = DatasetType::kShards;
    config.dataset_path = folder_.file("data");
    config.steps = 60;
    config.optimizer.learning_rate = 4;
    config.optimizer.schedule_steps = config.optimizer.warmup_steps = config.steps;
    config.optimizer.clipping_threshold = 0;
    config.eval.holdout_fraction = 0.2;
    config.eval.interval = kInterval;
    config.eval.early_stopping_patience = kPatience;
    config.eval.keep_best_checkpoint = true;
    config.enable_checkpointing = true;
    config.checkpoint_directory = folder_.file(name);
    config.checkpoint_period = 3;
    config.max_checkpoints_to_keep = 1;
    return config;
  }

  static CheckpointInfo info_of(const std::string& path) {
    const auto folder = find_checkpoint(path);
    EXPECT_TRUE(folder.ok()) << folder.status();
    if (!folder.ok()) return {};
    auto info = verify_checkpoint(*folder, /*checksums=*/true);
    EXPECT_TRUE(info.ok()) << info.status();
    if (!info.ok()) return {};
    info->folder = *folder;
    return *std::move(info);
  }

  // Runs the config and stops it after every `steps` steps, until it ends.
  static void run_in_parts(const TrainConfig& config, int64_t steps) {
    for (int part = 0; part < kRestartsMax; ++part) {
      const RunResult result = run(config, [&](int rank, const StepRecord& record, auto& stop) {
        if (rank == 0 && (record.step + 1) % steps == 0) stop = true;
      });
      ASSERT_THAT(result.codes, Each(testing::AnyOf(ExitCode::kOk, ExitCode::kPreempted)))
          << result.err;
      if (result.codes[0] == ExitCode::kOk) return;
    }
    FAIL() << "does not end";
  }

  TempFolder folder_;
};

TEST_F(BestEvaluation, IsSavedAndEndsTheTrainingAlikeAfterRestarts) {
  for (const int ranks : {1, 4}) {
    TrainConfig whole = config(ranks, absl::StrCat("whole-", ranks));
    if (ranks == 4) {
      whole.mesh.ici.fill(1);
      whole.mesh.ici[static_cast<size_t>(MeshAxis::kData)] = 2;
      whole.mesh.ici[static_cast<size_t>(MeshAxis::kFsdp)] = 2;
    }
    const RunResult result = run(whole);
    ASSERT_THAT(result.codes, Each(ExitCode::kOk)) << result.err;
    const auto end = static_cast<int64_t>(result.losses().size());
    const int64_t best_step = end - kPatience * kInterval;
    ASSERT_LT(end, whole.steps);
    ASSERT_GE(best_step, 2 * kInterval);
    EXPECT_THAT(result.out, HasSubstr(absl::StrCat("Early stop: loss has not improved in ",
                                                   kPatience, " evaluations; best: ")));

    const CheckpointInfo best = info_of(whole.checkpoint_directory + "/best");
    const CheckpointInfo newest = info_of(whole.checkpoint_directory);
    EXPECT_EQ(best.step, best_step);
    EXPECT_EQ(newest.step, end);
    const auto source = ParameterSource::open(whole.checkpoint_directory + "/best");
    ASSERT_TRUE(source.ok()) << source.status();
    EXPECT_EQ((*source)->description().steps, best_step);
    const auto& evaluation = result.evaluations[0][static_cast<size_t>(best_step / kInterval - 1)];
    EXPECT_EQ(evaluation.step + 1, best_step);
    EXPECT_EQ(newest.evaluation, (EvalProgress{.metric = "loss",
                                               .best = evaluation.loss,
                                               .best_step = best_step,
                                               .evaluations_since_best = kPatience,
                                               .evaluated_step = end}));
    EXPECT_FALSE(std::filesystem::exists(absl::StrCat(whole.checkpoint_directory, "/", kInterval)))
        << "an earlier best checkpoint was not removed";

    // Stops after an evaluation's step prevent the evaluation, which the next start makes up for.
    for (const int64_t part : {int64_t{3}, kInterval}) {
      TrainConfig parts = whole;
      parts.checkpoint_directory = folder_.file(absl::StrCat("parts-", ranks, "-", part));
      ASSERT_NO_FATAL_FAILURE(run_in_parts(parts, part));
      const CheckpointInfo again = info_of(parts.checkpoint_directory);
      EXPECT_EQ(again.step, end);
      EXPECT_EQ(again.evaluation, newest.evaluation);
      EXPECT_EQ(checkpoint_bytes(again.folder), checkpoint_bytes(newest.folder));
      EXPECT_EQ(checkpoint_bytes(info_of(parts.checkpoint_directory + "/best").folder),
                checkpoint_bytes(best.folder));
      const RunResult nothing = run(parts);
      EXPECT_THAT(nothing.codes, Each(ExitCode::kOk)) << nothing.err;
      EXPECT_TRUE(nothing.records[0].empty());
      EXPECT_THAT(nothing.out, HasSubstr("early_stopping_patience is exhausted"));
    }
  }
}

TEST_F(BestEvaluation, SettingsThatDoNotFitNameTheKeys) {
  const auto message = [](const TrainConfig& config) {
    return std::string(validate(config).message());
  };
  TrainConfig wrong = config(1, "wrong");
  ASSERT_TRUE(validate(wrong).ok()) << message(wrong);
  wrong.eval.best_metric = "perplexity/bits_per_bite";
  EXPECT_THAT(message(wrong), HasSubstr("did you mean perplexity/bits_per_byte?"));
  wrong.eval.best_metric = "lambada/acc";
  EXPECT_THAT(message(wrong),
              HasSubstr("keep_best_checkpoint=True: metric_for_best_model is lambada/acc, which is "
                        "not evaluated; add lambada=FILE to eval_tasks"));
  wrong = config(1, "wrong");
  wrong.eval.interval = -1;
  EXPECT_THAT(message(wrong), HasSubstr("keep_best_checkpoint=True needs evaluations; set "
                                        "eval_interval"));
  wrong = config(1, "wrong");
  wrong.enable_checkpointing = false;
  EXPECT_THAT(message(wrong), HasSubstr("enable_checkpointing is False"));
  wrong = config(1, "wrong");
  wrong.eval.early_stopping_patience = -1;
  EXPECT_THAT(message(wrong), HasSubstr("early_stopping_patience is -1"));
}

TEST_F(BestEvaluation, MayBeThatOfATask) {
  write_file(folder_.file("words.jsonl"), R"({"text": "Saul the king smote the city"})"
                                          "\n"
                                          R"({"text": "And it came to pass in the year"})"
                                          "\n");
  TrainConfig task = config(1, "task");
  task.steps = 12;
  task.tokenizer_path = folder_.file("t.model");
  task.eval.tasks = "lambada=" + folder_.file("words.jsonl");
  task.eval.best_metric = "lambada/perplexity";
  const RunResult result = run(task);
  ASSERT_THAT(result.codes, Each(ExitCode::kOk)) << result.err;
  const EvalProgress progress = info_of(task.checkpoint_directory).evaluation;
  EXPECT_EQ(progress.metric, "lambada/perplexity");
  double lowest = std::numeric_limits<double>::infinity();
  int64_t best_step = -1;
  for (const EvalRecord& record : result.evaluations[0]) {
    ASSERT_EQ(record.tasks.size(), 1U);
    for (const TaskMetric& metric : record.tasks[0].metrics) {
      if (metric.name != "perplexity" || metric.value >= lowest) continue;
      lowest = metric.value;
      best_step = record.step + 1;
    }
  }
  EXPECT_EQ(progress.best, lowest);
  EXPECT_EQ(progress.best_step, best_step);
  EXPECT_EQ(info_of(task.checkpoint_directory + "/best").step, best_step);
}

TEST_F(BestEvaluation, IsAnErrorIfItsStateWasNotSaved) {
  TrainConfig all = config(1, "all");
  all.max_checkpoints_to_keep = -1;
  ASSERT_THAT(run(all).codes, Each(ExitCode::kOk));
  const CheckpointInfo best = info_of(all.checkpoint_directory + "/best");
  EXPECT_EQ(info_of(all.checkpoint_directory + "/best/").step, best.step);
  std::filesystem::remove_all(best.folder);
  const std::string message(find_checkpoint(all.checkpoint_directory + "/best").status().message());
  EXPECT_THAT(message, HasSubstr(absl::StrCat("the best evaluation is that after step ",
                                              best.step - 1, ", whose state was not saved; ")));
  EXPECT_THAT(message, HasSubstr("was the best when it was saved (after step "));
  EXPECT_THAT(std::string(find_checkpoint(folder_.file("typo/best")).status().message()),
              HasSubstr("there is no folder " + folder_.file("typo")));
}

TEST_F(BestEvaluation, EarlyStoppingNeedsEvaluationsDuringTheTraining) {
  TrainConfig wrong = config(1, "wrong");
  wrong.eval.interval = -1;
  wrong.eval.at_end = true;
  EXPECT_THAT(std::string(validate(wrong).message()),
              HasSubstr("early_stopping_patience=2 needs evaluations during the training"));
  wrong.eval.early_stopping_patience = 0;
  EXPECT_TRUE(validate(wrong).ok());
}

TEST_F(BestEvaluation, IsAnErrorWithInstructionsIfThereIsNone) {
  TrainConfig plain = config(1, "plain");
  plain.eval = {};
  plain.steps = 3;
  ASSERT_THAT(run(plain).codes, Each(ExitCode::kOk));
  EXPECT_THAT(std::string(find_checkpoint(plain.checkpoint_directory + "/best").status().message()),
              HasSubstr("keep_best_checkpoint=True"));
}

}  // namespace
}  // namespace muster::trainer
