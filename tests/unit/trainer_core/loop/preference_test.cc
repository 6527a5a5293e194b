// Trainings by direct preference optimization: on every mesh, with restarts, and bad settings.
#include <gmock/gmock.h>

#include <cmath>
#include <fstream>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/unit/meshes.h"
#include "tests/unit/temp_folder.h"
#include "tests/unit/trainer_core/train_helpers.h"
#include "trainer_core/base/lora.h"
#include "trainer_core/text/tokenize.h"

namespace muster::trainer {
namespace {

using testing::Each;
using testing::HasSubstr;

class Preferences : public testing::Test {
 protected:
  void SetUp() override {
    make_text_dataset(folder_.path());
    const std::vector<std::string> kings = {"David", "Saul", "Solomon", "Ahab"};
    std::ofstream pairs(folder_.file("pairs.jsonl"));
    for (size_t i = 0; i < 40; ++i) {
      const std::string other = i % 3 == 0 ? " went up unto the house" : " smote the city";
      pairs << nlohmann::json({{"prompt", absl::StrCat("In the year ", i, ", ", kings[i % 4])},
                               {"chosen", " reigned in Jerusalem"},
                               {"rejected", other}})
                   .dump()
            << "\n";
    }
    pairs.close();
    TokenizeOptions options;
    options.inputs = {folder_.file("pairs.jsonl")};
    options.tokenizer_path = folder_.file("t.model");
    options.output_directory = folder_.file("pairs");
    options.sft = options.dpo = true;
    const auto report = tokenize_files(options);
    ASSERT_TRUE(report.ok()) << report.status();
  }

  TrainConfig config() const {
    TrainConfig config = tiny_config(1);
    config.model.num_layers = 4;
    config.model.num_kv_heads = 4;
    config.model.vocab_size = kTextVocab;
    config.max_target_length = 128;
    config.per_device_batch_size = 4;
    config.dataset_type = DatasetType::kShards;
    config.dataset_path = folder_.file("pairs");
    config.steps = 12;
    config.optimizer.learning_rate = 3e-3;
    config.optimizer.schedule_steps = config.steps;
    config.dpo = {.enabled = true, .beta = 0.3, .label_smoothing = 0.1};
    config.eval.dataset_path = config.dataset_path;
    config.eval.interval = 6;
    config.eval.per_device_batch_size = 4;
    return config;
  }

  TrainConfig with_adapters() const {
    TrainConfig adapted = config();
    adapted.model.lora = {
        .rank = 4, .alpha = 8, .targets = lora_targets(adapted.model, LoraLayers::kAll)};
    return adapted;
  }

  static void expect_close(const PreferenceSums& actual, const PreferenceSums& expected,
                           const std::string& what) {
    const auto mine = preference_figures(actual), theirs = preference_figures(expected);
    for (size_t i = 0; i < mine.size(); ++i)
      EXPECT_NEAR(mine[i].second, theirs[i].second, 2e-4 + 2e-5 * std::abs(theirs[i].second))
          << what << ", " << mine[i].first;
  }

  // Every mesh of 4 ranks has the curve of one rank.
  void compare_meshes(const TrainConfig& whole) const {
    const RunResult one = run(whole);
    ASSERT_THAT(one.codes, Each(ExitCode::kOk)) << one.err;
    int meshes = 0;
    for (const Degrees& degrees : factorisations(4)) {
      TrainConfig config = whole;
      config.mesh.ici = degrees;
      if (degrees[static_cast<size_t>(MeshAxis::kExpert)] > 1) continue;
      const int32_t slices = degrees[static_cast<size_t>(MeshAxis::kData)] *
                             degrees[static_cast<size_t>(MeshAxis::kFsdp)];
      config.per_device_batch_size = config.eval.per_device_batch_size = 4 / slices;
      if (degrees[static_cast<size_t>(MeshAxis::kPipeline)] > 1)
        config.pipeline_microbatches = config.per_device_batch_size;
      const std::string name = absl::StrCat("mesh ", absl::StrJoin(degrees, "x"));
      const absl::Status valid = validate(config);
      ASSERT_TRUE(valid.ok()) << name << ": " << valid;
      ++meshes;
      const RunResult result = run(config);
      ASSERT_THAT(result.codes, Each(ExitCode::kOk)) << name << ": " << result.err;
      for (size_t step = 0; step < one.records[0].size(); ++step) {
        const StepRecord &mine = result.records[0][step], &theirs = one.records[0][step];
        EXPECT_NEAR(mine.loss, theirs.loss, 2e-5) << name << ", step " << step;
        EXPECT_NEAR(mine.raw_grad_norm, theirs.raw_grad_norm, 2e-4 * theirs.raw_grad_norm)
            << name << ", step " << step;
        expect_close(*mine.preferences, *theirs.preferences, absl::StrCat(name, ", step ", step));
      }
      for (size_t i = 0; i < one.evaluations[0].size(); ++i)
        EXPECT_NEAR(result.evaluations[0][i].loss, one.evaluations[0][i].loss, 2e-5) << name;
    }
    EXPECT_EQ(meshes, 21);
  }

  TempFolder folder_;
};

TEST_F(Preferences, LearnFromTheReferenceModelOn) {
  for (TrainConfig tuned : {config(), with_adapters()}) {
    tuned.eval.early_stopping_patience = 5;
    tuned.eval.best_metric = "rewards/accuracies";
    const RunResult result = run(tuned);
    ASSERT_THAT(result.codes, Each(ExitCode::kOk)) << result.err;
    const auto& steps = result.records[0];
    // The first step's policy is the reference model.
    EXPECT_NEAR(steps[0].loss, std::log(2), 1e-6);
    EXPECT_EQ(steps[0].preferences->chosen_reward, 0);
    EXPECT_EQ(steps[0].preferences->accurate, 0);
    EXPECT_EQ(steps[0].total_weights, steps[0].preferences->pairs);
    EXPECT_GT(steps[0].preferences->pairs, 4) << "sequences have several pairs";
    EXPECT_LT(steps.back().loss, 0.6);
    EXPECT_EQ(steps.back().preferences->accurate, steps.back().preferences->pairs);
    EXPECT_GT(steps.back().preferences->chosen_reward, steps.back().preferences->rejected_reward);
    EXPECT_THAT(result.out, HasSubstr("rewards/accuracies=1.0000"));
    ASSERT_EQ(result.evaluations[0].size(), 2U);
    EXPECT_LT(result.evaluations[0][1].loss, result.evaluations[0][0].loss);
    EXPECT_THAT(result.out, HasSubstr("rewards/margins="));
    EXPECT_THAT(result.out, HasSubstr("best rewards/accuracies: 1 after step "));
  }
}

TEST_F(Preferences, AreThoseOfOneRankOnEveryMesh) { compare_meshes(config()); }
TEST_F(Preferences, OfAdaptersAreThoseOfOneRankOnEveryMesh) { compare_meshes(with_adapters()); }

TEST_F(Preferences, DoNotDependOnPackingAndAccumulation) {
  TrainConfig one_pair = config();
  one_pair.packing = false;
  one_pair.eval = {};
  const RunResult whole = run(one_pair);
  ASSERT_THAT(whole.codes, Each(ExitCode::kOk)) << whole.err;
  EXPECT_EQ(whole.records[0][0].preferences->pairs, 4);
  TrainConfig accumulated = one_pair;
  accumulated.per_device_batch_size = 1;
  accumulated.gradient_accumulation_steps = 4;
  const RunResult parts = run(accumulated);
  ASSERT_THAT(parts.codes, Each(ExitCode::kOk)) << parts.err;
  for (size_t step = 0; step < whole.losses().size(); ++step)
    EXPECT_NEAR(parts.losses()[step], whole.losses()[step], 2e-5) << step;
}

TEST_F(Preferences, ContinueAfterARestartWithTheSameBits) {
  for (const bool adapts : {false, true}) {
    TrainConfig whole = adapts ? with_adapters() : config();
    whole.mesh.ici[static_cast<size_t>(MeshAxis::kFsdp)] = 2;
    whole.per_device_batch_size = whole.eval.per_device_batch_size = 2;
    whole.enable_checkpointing = true;
    whole.checkpoint_directory = folder_.file(adapts ? "whole-lora" : "whole");
    TrainConfig parts = whole;
    parts.checkpoint_directory = folder_.file(adapts ? "parts-lora" : "parts");
    ASSERT_THAT(run(whole).codes, Each(ExitCode::kOk));
    const RunResult first = run(parts, [](int rank, const StepRecord& record, auto& stop) {
      if (rank == 0 && record.step == 4) stop = true;
    });
    ASSERT_THAT(first.codes, Each(ExitCode::kPreempted)) << first.err;
    const RunResult second = run(parts);
    ASSERT_THAT(second.codes, Each(ExitCode::kOk)) << second.err;
    EXPECT_LT(second.records[0].size(), 8U);
    EXPECT_EQ(checkpoint_bytes(parts.checkpoint_directory + "/12"),
              checkpoint_bytes(whole.checkpoint_directory + "/12"));
  }
}

TEST_F(Preferences, OfOtherDataOrSettingsAreErrorsWithTheKey) {
  TrainConfig other = config();
  other.dataset_path = folder_.file("data");
  EXPECT_THAT(run(other).err, HasSubstr("has no pairs of answers, which use_dpo=True needs"));
  other = config();
  other.dpo = {};
  EXPECT_THAT(run(other).err, HasSubstr("set use_dpo=True"));
  other = config();
  other.max_target_length = 8;
  EXPECT_THAT(run(other).err, HasSubstr("nothing is left to train on; raise max_target_length"));
  const auto message = [&](const std::function<void(TrainConfig&)>& change) {
    TrainConfig wrong = config();
    change(wrong);
    return std::string(validate(wrong).message());
  };
  EXPECT_EQ(message([](TrainConfig&) {}), "");
  EXPECT_THAT(message([](TrainConfig& c) {
                c.dpo = {};
                c.eval.early_stopping_patience = 1;
                c.eval.best_metric = "rewards/margins";
              }),
              HasSubstr("rewards/margins, which needs use_dpo=True"));
  EXPECT_THAT(message([](TrainConfig& c) { c.dpo.beta = 0; }), HasSubstr("dpo_beta is 0"));
  EXPECT_THAT(message([](TrainConfig& c) { c.dpo.label_smoothing = 0.5; }),
              HasSubstr("dpo_label_smoothing is 0.5"));
  EXPECT_THAT(message([](TrainConfig& c) { c.dpo.loss = DpoLoss::kIpo; }),
              HasSubstr("only dpo_loss_type=sigmoid"));
  EXPECT_THAT(message([](TrainConfig& c) { c.sft.enabled = true; }), HasSubstr("use_sft=True"));
  EXPECT_THAT(message([](TrainConfig& c) { c.model.dropout_rate = 0.1; }),
              HasSubstr("dropout_rate=0"));
  EXPECT_THAT(message([](TrainConfig& c) { c.model.z_loss_multiplier = 1e-4; }),
              HasSubstr("z_loss_multiplier=0"));
  EXPECT_THAT(message([](TrainConfig& c) {
                c.dataset_type = DatasetType::kSynthetic;
                c.eval = {};
              }),
              HasSubstr("muster tokenize --dpo"));
}

}  // namespace
}  // namespace muster::trainer
