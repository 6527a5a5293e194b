// Evaluation tasks: equal results on every mesh, with every batch, packed or not; and during
// trainings.
#include <gmock/gmock.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <tuple>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/unit/temp_folder.h"
#include "tests/unit/trainer_core/train_helpers.h"
#include "trainer_core/base/train_mesh.h"

namespace muster::trainer {
namespace {

using nlohmann::json;
using testing::Each;
using testing::HasSubstr;

constexpr int64_t kTrainedSteps = 60;

class TaskEvaluations : public testing::Test {
 protected:
  void SetUp() override {
    make_text_dataset(folder_.path());
    write("lambada", R"({"text": "And it came to pass in the year 9, that Ahab the king"})"
                     "\n"
                     R"({"text": "Saul the king smote the city with the edge of the sword"})"
                     "\n"
                     R"({"text": "And it came to pass in the house"})");
    write("boolq", R"({"passage": "David reigned.", "question": "was he king", "answer": true})"
                   "\n"
                   R"({"passage": "Saul went up.", "question": "did he stay", "answer": false})");
    write("choice",
          R"({"context": "And it", "choices": [" came to pass", " reigned"], "gold": 0})");
    write("loglikelihood", R"({"context": "", "continuation": "And it came"})"
                           "\n"
                           R"({"context": "in the year ", "continuation": "40, that David"})");
    std::string text;
    for (int i = 0; i < 9; ++i) text += "And it came to pass in the year 40, that David the king. ";
    write("perplexity", json({{"text", text}}).dump());
  }

  void write(const std::string& task, const std::string& lines) {
    std::ofstream(folder_.file(task + ".jsonl")) << lines << "\n";
    absl::StrAppend(&tasks_, tasks_.empty() ? "" : ",", task, "=", folder_.file(task + ".jsonl"));
  }

  TrainConfig config() const {
    TrainConfig config = tiny_config(1);
    config.model.num_layers = 4;
    config.model.num_kv_heads = 4;
    config.model.vocab_size = kTextVocab;
    config.max_target_length = 64;
    config.per_device_batch_size = 4;
    config.dataset_type = DatasetType::kShards;
    config.dataset_path = folder_.file("data");
    config.tokenizer_path = folder_.file("t.model");
    config.eval.tasks = tasks_;
    config.steps = kTrainedSteps;
    config.optimizer.learning_rate = 1e-2;
    config.optimizer.schedule_steps = kTrainedSteps;
    config.eval.interval = kTrainedSteps / 2;
    config.eval.per_device_batch_size = 4;
    if (change_) change_(config);
    return config;
  }

  // A config that evaluates the trained model without training.
  TrainConfig evaluation(const std::string& name) const {
    TrainConfig evaluation = config();
    evaluation.steps = 0;
    evaluation.eval.interval = 1;
    evaluation.eval.output = folder_.file(name);
    evaluation.load_parameters_path = absl::StrCat(folder_.file("trained"), "/", kTrainedSteps);
    return evaluation;
  }

  void train_model() {
    TrainConfig trained = config();
    trained.enable_checkpointing = true;
    trained.checkpoint_directory = folder_.file("trained");
    trained.metrics_file = folder_.file("metrics.jsonl");
    trained_ = run(trained);
    ASSERT_THAT(trained_.codes, Each(ExitCode::kOk)) << trained_.err;
  }

  // Runs the config and returns the log-likelihoods of all samples, and whether they are greedy.
  std::vector<std::pair<double, bool>> scores(const TrainConfig& config) {
    const RunResult result = run(config);
    EXPECT_THAT(result.codes, Each(ExitCode::kOk)) << result.err;
    for (const auto& records : result.evaluations) {
      EXPECT_THAT(records,
                  testing::ElementsAre(testing::Field(&EvalRecord::tasks, testing::SizeIs(5))));
    }
    std::vector<std::pair<double, bool>> scores;
    for (const char* task : {"lambada", "boolq", "choice", "loglikelihood", "perplexity"}) {
      std::istringstream lines(read_file(absl::StrCat(config.eval.output, "/", task, "-60.jsonl")));
      for (std::string line; std::getline(lines, line);) {
        const json sample = json::parse(line);
        if (sample.contains("log_likelihoods")) {
          for (const double value : sample["log_likelihoods"]) scores.emplace_back(value, false);
        } else {
          scores.emplace_back(sample["log_likelihood"], sample["is_greedy"]);
        }
      }
    }
    return scores;
  }

  void expect_scores(const TrainConfig& config, const std::vector<std::pair<double, bool>>& wanted,
                     const std::string& what) {
    const auto actual = scores(config);
    ASSERT_EQ(actual.size(), wanted.size()) << what;
    for (size_t i = 0; i < wanted.size(); ++i) {
      EXPECT_NEAR(actual[i].first, wanted[i].first, 1e-5 * std::abs(wanted[i].first) + 1e-5)
          << what << ", sample " << i;
      EXPECT_EQ(actual[i].second, wanted[i].second) << what << ", sample " << i;
    }
  }

  TempFolder folder_;
  std::function<void(TrainConfig&)> change_;  // changes every config
  std::string tasks_;
  RunResult trained_;
};

TEST_F(TaskEvaluations, AreEqualOnEveryMesh) {
  ASSERT_NO_FATAL_FAILURE(train_model());
  const auto wanted = scores(evaluation("one"));
  ASSERT_EQ(wanted.size(), 3U + 2 * 2 + 2 + 2 + 1);
  // The model has learned some of the words, but not all.
  const auto greedy = std::ranges::count(wanted, true, &std::pair<double, bool>::second);
  EXPECT_GT(greedy, 0);
  EXPECT_LT(greedy, 6);
  int meshes = 0;
  constexpr MeshAxis kAxes[] = {MeshAxis::kData,    MeshAxis::kFsdp,     MeshAxis::kTensor,
                                MeshAxis::kContext, MeshAxis::kSequence, MeshAxis::kPipeline};
  for (const MeshAxis a : kAxes) {
    for (const MeshAxis b : kAxes) {
      if (b < a) continue;
      const std::string name = absl::StrCat("mesh", static_cast<int>(a), "x", static_cast<int>(b));
      TrainConfig config = evaluation(name);
      config.mesh.ici[static_cast<size_t>(a)] *= 2;
      config.mesh.ici[static_cast<size_t>(b)] *= 2;
      if (config.mesh.ici[static_cast<size_t>(MeshAxis::kPipeline)] > 1)
        config.pipeline_microbatches = 4;
      if (!validate(config).ok()) continue;
      ++meshes;
      expect_scores(config, wanted, name);
    }
  }
  EXPECT_GE(meshes, 18);
}

TEST_F(TaskEvaluations, AreEqualWithEveryBatchAndLayout) {
  ASSERT_NO_FATAL_FAILURE(train_model());
  const auto wanted = scores(evaluation("one"));
  for (const int32_t batch : {1, 3, 7}) {
    TrainConfig config = evaluation(absl::StrCat("batch", batch));
    config.eval.per_device_batch_size = batch;
    config.per_device_batch_size = std::min(batch, 2);
    expect_scores(config, wanted, absl::StrCat("batches of ", batch));
  }
  TrainConfig padded = evaluation("padded");
  padded.packing = false;
  expect_scores(padded, wanted, "one text per sequence");
}

// The checkpoint has the data of its training; the config of an evaluation need not have them.
TEST_F(TaskEvaluations, TextsBeginAsInTheTrainingOfTheCheckpoint) {
  ASSERT_NO_FATAL_FAILURE(train_model());
  const auto wanted = scores(evaluation("shards"));
  TrainConfig synthetic = evaluation("synthetic");
  synthetic.dataset_type = DatasetType::kSynthetic;
  synthetic.dataset_path.clear();
  expect_scores(synthetic, wanted, "synthetic");
}

// bfloat16 has 8 significant bits. The largest difference was 0.8% when the test was written.
TEST_F(TaskEvaluations, AreCloseInBfloat16) {
  ASSERT_NO_FATAL_FAILURE(train_model());
  const auto wanted = scores(evaluation("float32"));
  TrainConfig config = evaluation("bfloat16");
  config.dtype = ComputeType::kBfloat16;
  const auto actual = scores(config);
  ASSERT_EQ(actual.size(), wanted.size());
  double largest = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    const double difference = std::abs(actual[i].first - wanted[i].first);
    largest = std::max(largest, difference);
    EXPECT_LT(difference, 0.02 * std::abs(wanted[i].first) + 0.05) << "sample " << i;
  }
  EXPECT_GT(largest, 1e-4) << "computed in float32";
}

TEST_F(TaskEvaluations, RunDuringTrainingsAndGoToTheMetrics) {
  ASSERT_NO_FATAL_FAILURE(train_model());
  ASSERT_EQ(trained_.evaluations[0].size(), 2U);
  const EvalRecord& last = trained_.evaluations[0][1];
  EXPECT_FALSE(last.has_loss);
  ASSERT_EQ(last.tasks.size(), 5U);
  EXPECT_EQ(last.tasks[0].samples, 3U);
  EXPECT_THAT(trained_.out, HasSubstr("eval tasks after step: 59, lambada/acc="));
  EXPECT_THAT(trained_.out, testing::Not(HasSubstr("eval metrics after step")));
  // The model after training, evaluated again.
  const RunResult again = run(evaluation("again"));
  EXPECT_EQ(again.evaluations[0][0].tasks[0].metrics, last.tasks[0].metrics);
  const json results = json::parse(read_file(folder_.file("again/results-60.json")));
  EXPECT_EQ(results["results"]["lambada"]["acc"], last.tasks[0].metrics[0].value);
  EXPECT_GT(results["results"]["perplexity"]["tokens_per_second"], 0);
  std::istringstream metrics(read_file(folder_.file("metrics.jsonl")));
  int evaluations = 0;
  for (std::string line; std::getline(metrics, line);) {
    const json row = json::parse(line);
    if (!row.contains("eval/lambada/acc")) continue;
    ++evaluations;
    EXPECT_TRUE(row.contains("eval/lambada/acc_stderr"));
    EXPECT_TRUE(row.contains("eval/boolq/acc_norm"));
    EXPECT_TRUE(row.contains("eval/perplexity/bits_per_byte"));
    EXPECT_FALSE(row.contains("eval/avg_loss"));
  }
  EXPECT_EQ(evaluations, 2);
}

// A checkpoint has the scales of its training, which an evaluation of it uses.
TEST_F(TaskEvaluations, OfACheckpointUseItsScales) {
  change_ = [](TrainConfig& config) {
    config.model.quantization = {.type = QuantizationType::kFp8Delayed, .amax_history_length = 4};
  };
  ASSERT_NO_FATAL_FAILURE(train_model());
  const EvalRecord& last = trained_.evaluations[0].back();
  for (const int32_t history : {4, 9}) {
    TrainConfig config = evaluation(absl::StrCat("again", history));
    config.model.quantization.amax_history_length = history;
    const RunResult again = run(config);
    ASSERT_THAT(again.codes, Each(ExitCode::kOk)) << again.err;
    for (size_t i = 0; i < last.tasks.size(); ++i)
      EXPECT_EQ(again.evaluations[0][0].tasks[i].metrics, last.tasks[i].metrics) << history;
  }
}

// Adapters of a frozen base in blocks, whose checkpoint has scales, too.
TEST_F(TaskEvaluations, OfAdaptersUseTheirScales) {
  change_ = [](TrainConfig& config) {
    config.model.quantization = {.type = QuantizationType::kFp8Delayed, .amax_history_length = 4};
    config.model.lora = {.rank = 4,
                         .alpha = 8,
                         .targets = lora_targets(config.model, LoraLayers::kAll),
                         .weight_type = WeightType::kNf4};
  };
  ASSERT_NO_FATAL_FAILURE(train_model());
  const EvalRecord& last = trained_.evaluations[0].back();
  TrainConfig config = evaluation("again");
  config.lora_restore_path = std::exchange(config.load_parameters_path, "");
  const RunResult again = run(config);
  ASSERT_THAT(again.codes, Each(ExitCode::kOk)) << again.err;
  for (size_t i = 0; i < last.tasks.size(); ++i)
    EXPECT_EQ(again.evaluations[0][0].tasks[i].metrics, last.tasks[i].metrics);
}

// Stopped by a vote in its last step, and started again.
TEST_F(TaskEvaluations, TheLastOneIsMadeUpForOnceAfterAStop) {
  for (const bool at_end : {true, false}) {
    TrainConfig stopped = config();
    stopped.steps = 6;
    stopped.eval.interval = at_end ? -1 : 6;
    stopped.eval.at_end = at_end;
    stopped.enable_checkpointing = true;
    stopped.checkpoint_directory = folder_.file(absl::StrCat("stopped-", at_end));
    const RunResult first = run(stopped, [](int, const StepRecord& record, auto& stop) {
      if (record.step == 4) stop = true;  // the vote of step 5
    });
    EXPECT_THAT(first.codes, Each(ExitCode::kPreempted)) << first.err;
    EXPECT_EQ(first.evaluations[0].size(), 0U);
    const RunResult second = run(stopped);
    EXPECT_THAT(second.codes, Each(ExitCode::kOk)) << second.err;
    EXPECT_EQ(second.records[0].size(), 0U);
    ASSERT_EQ(second.evaluations[0].size(), 1U);
    EXPECT_EQ(second.evaluations[0][0].step, 5);
    const RunResult third = run(stopped);
    EXPECT_THAT(third.codes, Each(ExitCode::kOk)) << third.err;
    EXPECT_EQ(third.evaluations[0].size(), 0U);
    EXPECT_THAT(third.out, HasSubstr("nothing to do: 6 steps are completed"));
  }
}

TEST_F(TaskEvaluations, TheLastOneIsMadeIfTheDataEndsBeforeTheSteps) {
  TrainConfig ends = config();
  ends.per_device_batch_size = 64;
  ends.num_epoch = 1;
  ends.eval.interval = -1;
  ends.eval.at_end = true;
  const RunResult result = run(ends);
  EXPECT_THAT(result.codes, Each(ExitCode::kOk)) << result.err;
  const auto steps = static_cast<int64_t>(result.records[0].size());
  ASSERT_LT(steps, ends.steps);
  ASSERT_EQ(result.evaluations[0].size(), 1U);
  EXPECT_EQ(result.evaluations[0][0].step, steps - 1);
}

TEST_F(TaskEvaluations, ResultsThatCannotBeWrittenEndNoTraining) {
  TrainConfig trained = config();
  trained.enable_checkpointing = true;
  trained.checkpoint_directory = folder_.file("trained");
  trained.eval.output = folder_.file("results");
  // Folders where files must be.
  for (const int64_t steps : {kTrainedSteps / 2, kTrainedSteps})
    std::filesystem::create_directories(
        absl::StrCat(trained.eval.output, "/results-", steps, ".json"));
  const RunResult training = run(trained);
  EXPECT_THAT(training.codes, Each(ExitCode::kOk)) << training.err;
  EXPECT_THAT(training.err, HasSubstr("warning: the results of evaluation tasks are lost: "));
  // An evaluation alone ends with the error, after its table.
  const RunResult evaluated = run(evaluation("results"));
  EXPECT_THAT(evaluated.codes, Each(ExitCode::kFailure));
  EXPECT_THAT(evaluated.out, HasSubstr("eval tasks after step: 59, lambada/acc="));
  EXPECT_THAT(evaluated.err, HasSubstr("eval_output: "));
}

TEST_F(TaskEvaluations, AFolderThatCannotBeWrittenIsRefusedAtTheStart) {
  TrainConfig trained = config();
  trained.eval.output = "/proc/nope";
  const RunResult result = run(trained);
  EXPECT_THAT(result.codes, Each(ExitCode::kBadInput));
  EXPECT_THAT(result.err, HasSubstr("eval_output: /proc/nope"));
}

}  // namespace
}  // namespace muster::trainer
