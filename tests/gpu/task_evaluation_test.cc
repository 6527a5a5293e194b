// Evaluation tasks with hardware=gpu: the scores of the CPU.
#include <gmock/gmock.h>

#include <fstream>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

#include "tests/gpu/gpu_device.h"
#include "tests/unit/temp_folder.h"
#include "tests/unit/trainer_core/train_helpers.h"

namespace muster::trainer {
namespace {

using testing::Each;

TEST(TaskEvaluationOnADevice, HasTheScoresOfTheCpu) {
  const TempFolder folder;
  make_text_dataset(folder.path());
  write_file(folder.file("texts.jsonl"), R"({"text": "And it came to pass in the year"})"
                                         "\n"
                                         R"({"text": "David the king reigned in Jerusalem"})");
  TrainConfig config = tiny_config(1);
  config.model.vocab_size = kTextVocab;
  config.max_target_length = 32;
  config.per_device_batch_size = 2;
  config.steps = 2;
  config.threads = 1;
  config.dataset_type = DatasetType::kShards;
  config.dataset_path = folder.file("data");
  config.tokenizer_path = folder.file("t.model");
  config.eval.interval = 1;
  config.eval.per_device_batch_size = 2;
  config.eval.tasks = absl::StrCat("lambada=", folder.file("texts.jsonl"),
                                   ",perplexity=", folder.file("texts.jsonl"));
  TrainConfig on_two_ranks = config;
  on_two_ranks.mesh.ici[static_cast<size_t>(MeshAxis::kTensor)] = 2;
  for (const TrainConfig& run_config : {config, on_two_ranks}) {
    const RunResult device = run(run_config);
    ASSERT_THAT(device.codes, Each(ExitCode::kOk)) << device.err;
    const OnCpu on_cpu;
    const RunResult cpu = run(run_config);
    ASSERT_EQ(device.evaluations[0].size(), 2U);
    for (size_t i = 0; i < 2; ++i) {
      const auto& wanted = cpu.evaluations[0][i].tasks;
      const auto& actual = device.evaluations[0][i].tasks;
      ASSERT_EQ(actual.size(), 2U);
      for (size_t task = 0; task < 2; ++task) {
        for (size_t k = 0; k < wanted[task].metrics.size(); ++k) {
          const TaskMetric& metric = wanted[task].metrics[k];
          EXPECT_NEAR(actual[task].metrics[k].value, metric.value, 1e-4 * metric.value + 1e-9)
              << metric.name;
        }
      }
    }
  }
}

}  // namespace
}  // namespace muster::trainer
