#include "trainer_core/loop/train.h"

#include <gmock/gmock.h>

#include <cmath>
#include <regex>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/unit/temp_folder.h"
#include "tests/unit/trainer_core/train_helpers.h"
#include "trainer_core/data/token_index.h"

namespace muster::trainer {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

TEST(Train, AnyNumberOfRanksGivesTheSameLossCurve) {
  const RunResult one = run(tiny_config(1));
  ASSERT_EQ(one.codes, std::vector{ExitCode::kOk}) << one.err;
  ASSERT_EQ(one.losses().size(), 20U);
  EXPECT_LT(one.losses().back(), one.losses().front() - 0.5);
  for (const int ranks : {2, 4}) {
    const RunResult many = run(tiny_config(ranks));
    ASSERT_THAT(many.codes, Each(ExitCode::kOk)) << many.err;
    for (size_t step = 0; step < 20; ++step) {
      const StepRecord& expected = one.records[0][step];
      for (size_t r = 0; r < many.records.size(); ++r) {
        EXPECT_NEAR(many.records[r][step].loss / expected.loss, 1, 1e-5)
            << ranks << " ranks, step " << step;
        EXPECT_EQ(many.records[r][step].loss, many.records[0][step].loss);
        EXPECT_NEAR(many.records[r][step].raw_grad_norm / expected.raw_grad_norm, 1, 1e-3);
        EXPECT_EQ(many.records[r][step].total_weights, expected.total_weights);
      }
    }
  }
}

TEST(Train, AnyNumberOfRanksDropsTheSame) {
  const auto with_dropout = [](int ranks) {
    TrainConfig config = tiny_config(ranks);
    config.model.dropout_rate = config.model.input_dropout_rate = 0.2;
    return run(config);
  };
  const RunResult one = with_dropout(1), four = with_dropout(4), plain = run(tiny_config(1));
  ASSERT_THAT(one.codes, Each(ExitCode::kOk)) << one.err;
  ASSERT_THAT(four.codes, Each(ExitCode::kOk)) << four.err;
  for (size_t step = 0; step < 20; ++step) {
    EXPECT_NEAR(four.losses()[step] / one.losses()[step], 1, 1e-5) << step;
    EXPECT_GT(std::abs(plain.losses()[step] / one.losses()[step] - 1), 1e-4) << step;
  }
}

// Users take the last line of any step: log_period does not thin them out.
TEST(Train, PrintsMaxTextsLinesForEachStep) {
  TrainConfig config = tiny_config(2);
  config.log_period = 8;
  const RunResult result = run(config);
  const std::regex expected(
      "memory: \\d+\\.\\d MiB \\(parameters .*\\)\n"
      "number parameters: [1-9]\\d{0,2}(,\\d{3})?\n"
      "Per train step:\n Total TFLOPs: 0\\.0+[1-9]\\d \n split as \\d+\\.\\d\\d% learnable weight "
      "flops and \\d+\\.\\d\\d% attention flops\n"
      "(completed step: \\d+, seconds: \\d+\\.\\d{3,}, TFLOP/s/device: \\d+\\.\\d{3,}, "
      "Tokens/s/device: \\d+\\.\\d{3}, "
      "total_weights: 64, loss: \\d+\\.\\d{3}\n){20}"
      "data wait: \\d+\\.\\d{3,} of \\d+\\.\\d{3,} seconds in 19 steps \\(\\d+\\.\\d{3,}%\\), at "
      "most \\d+\\.\\d{3,} in one\n"
      "summary: mean of 19 steps after the first: step \\d\\.\\d{3,6} s, \\d+\\.\\d\\d "
      "sequences/s, "
      "\\d+\\.\\d tokens/s on 2 devices, \\d+\\.\\d{3,} TFLOP/s/device\n"
      "(summary: MFU \\d+\\.\\d\\d+% of the measured \\S+ TFLOP/s, \\d+\\.\\d\\d+% if attention "
      "counts as causal.*\n)?"
      "summary: 1T tokens take \\d+\\.\\d\\d+ days; the run of 20 steps takes \\S+ s at this pace; "
      "last step: \\d\\.\\d{3,6} s\n"
      "summary: planned memory \\d+\\.\\d MiB, measured \\d+\\.\\d MiB \\([+-]\\d+\\.\\d%\\)\n");
  EXPECT_TRUE(std::regex_match(result.out, expected)) << result.out;
  EXPECT_EQ(result.err, "");
}

TEST(Train, TheMetricsFileHasALineAStep) {
  TempFolder folder;
  const auto lines_of = [&](TrainConfig config, const std::string& name) {
    config.metrics_file = folder.file("logs/" + name);
    EXPECT_THAT(run(config).codes, Each(ExitCode::kOk));
    std::istringstream text(read_file(config.metrics_file));
    std::vector<nlohmann::json> lines;
    for (std::string line; std::getline(text, line);) lines.push_back(nlohmann::json::parse(line));
    return lines;
  };
  const auto alone = lines_of(tiny_config(1), "alone"), data = lines_of(tiny_config(2), "data"),
             fsdp = lines_of(along_fsdp(tiny_config(2)), "fsdp"),
             tensor = lines_of(along_tensor(tiny_config(2)), "tensor");
  ASSERT_EQ(alone.size(), 20U);
  for (size_t step = 0; step < alone.size(); ++step) {
    EXPECT_FALSE(alone[step].contains("perf/comm_seconds"));
    const double norm = alone[step].at("learning/param_norm").get<double>();
    EXPECT_GT(norm, 0);
    EXPECT_LT(tensor[step].at("perf/comm_hidden_fraction").get<double>(), 1) << "it waits for rows";
    for (const auto* lines : {&data, &fsdp, &tensor}) {
      const nlohmann::json& line = lines->at(step);
      EXPECT_EQ(line.at("step"), step);
      EXPECT_NEAR(line.at("learning/param_norm").get<double>(), norm, 1e-5 * norm);
      EXPECT_GE(line.at("perf/data_wait_seconds").get<double>(), 0);
      EXPECT_GT(line.at("perf/comm_seconds").get<double>(), 0);
      EXPECT_GE(line.at("perf/comm_hidden_fraction").get<double>(), 0);
      EXPECT_LE(line.at("perf/comm_hidden_fraction").get<double>(), 1);
    }
  }
}

TEST(Train, LearnsRealTextBelowItsUnigramEntropy) {
  TempFolder folder;
  make_text_dataset(folder.path());
  TrainConfig config = tiny_config(2);
  config.model.vocab_size = kTextVocab;
  config.dataset_type = DatasetType::kShards;
  config.dataset_path = folder.file("data");
  config.steps = 60;
  config.optimizer.schedule_steps = 60;
  config.optimizer.learning_rate = 1e-2;
  config.max_target_length = 32;
  const RunResult result = run(config);
  ASSERT_THAT(result.codes, Each(ExitCode::kOk)) << result.err;
  const auto index = read_token_index(config.dataset_path);
  ASSERT_TRUE(index.ok());
  EXPECT_LT(result.losses().back(), 0.7 * index->unigram_entropy_nats);
}

TEST(Train, ALossThatIsNotFiniteAbortsWithoutACheckpoint) {
  TempFolder folder;
  TrainConfig config = tiny_config(2);
  config.optimizer.learning_rate = 1e30;
  config.optimizer.warmup_steps = 0;
  config.enable_checkpointing = true;
  config.checkpoint_directory = folder.file("ckpt");
  config.checkpoint_period = 1000;
  const RunResult result = run(config);
  EXPECT_THAT(result.codes, Each(ExitCode::kNotFinite));
  EXPECT_THAT(result.err, HasSubstr("Aborting training due to NaN loss. Step "));
  EXPECT_TRUE(std::filesystem::exists(config.checkpoint_directory + "/OWNER"));
  std::filesystem::remove(config.checkpoint_directory + "/OWNER");
  EXPECT_TRUE(std::filesystem::is_empty(config.checkpoint_directory));
}

// All ranks of a shared layer search for the culprit, whichever rank has the bad loss.
TEST(Train, ANonFiniteTensorIsNamedIfRanksShareParameters) {
  TrainConfig config = along_fsdp(tiny_config(4));
  config.optimizer.learning_rate = 1e30;
  config.optimizer.warmup_steps = 0;
  const RunResult result = run(config);
  EXPECT_THAT(result.codes, Each(ExitCode::kNotFinite));
  EXPECT_THAT(result.err, AllOf(HasSubstr("Aborting training due to NaN loss. Step "),
                                HasSubstr("the first tensor that is not finite is ")));
}

TEST(Train, DifferentConfigsAreNamedInASentence) {
  TrainConfig other = tiny_config(2);
  other.optimizer.learning_rate = 1e-4;
  const RunResult result = run_ranks({tiny_config(2), other});
  EXPECT_THAT(result.codes, Each(ExitCode::kBadInput));
  EXPECT_THAT(result.err, HasSubstr("rank 1 has another config than rank 0"));
}

TEST(Train, AMeshOfAnotherSizeIsBadInput) {
  const RunResult result = run_ranks({tiny_config(2)});
  EXPECT_EQ(result.codes[0], ExitCode::kBadInput);
  EXPECT_THAT(result.err, HasSubstr("ici_data_parallelism=2"));
}

// Only rank 0 writes metrics.
TEST(Train, ALostPeerIsNamedWithTheCollective) {
  TempFolder folder;
  write_file(folder.file("file"), "in a folder's place");
  TrainConfig config = tiny_config(2);
  config.metrics_file = folder.file("file/metrics.jsonl");
  const RunResult result = run(config);
  EXPECT_EQ(result.codes[0], ExitCode::kBadInput);
  EXPECT_EQ(result.codes[1], ExitCode::kPeerLost);
  EXPECT_THAT(result.err, HasSubstr("rank 0: start: "));
  EXPECT_THAT(result.err, HasSubstr("rank 1: start: all-gather \"fingerprints\""));
}

}  // namespace
}  // namespace muster::trainer
