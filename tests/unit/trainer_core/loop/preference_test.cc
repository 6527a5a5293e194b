// Trainings by direct preference optimization: on every mesh, with restarts, and bad settings.
#include <gmock/gmock.h>

#include <cmath>
#include <cstdio>
#include <fstream>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/unit/meshes.h"
#include "tests/unit/sanitized.h"
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

  TrainConfig with_experts() const {
    TrainConfig experts = config();
    experts.model.experts = {
        .count = 4, .per_token = 2, .mlp_dim = 48, .layer_step = 2, .balance_weight = 0.1};
    return experts;
  }

  // Every mesh of 4 ranks has the curve of one rank.
  void compare_meshes(const TrainConfig& whole) const {
    const RunResult one = run(whole);
    ASSERT_THAT(one.codes, Each(ExitCode::kOk)) << one.err;
    int meshes = 0, all = 0;
    for (const Degrees& degrees : factorisations(4)) {
      if (kSanitized && ++all % 4 != 0) continue;
      TrainConfig config = whole;
      config.mesh.ici = degrees;
      const int32_t expert = degrees[static_cast<size_t>(MeshAxis::kExpert)];
      if (expert > 1 && whole.model.experts.count == 1) continue;
      const int32_t slices = degrees[static_cast<size_t>(MeshAxis::kData)] *
                             degrees[static_cast<size_t>(MeshAxis::kFsdp)] * expert;
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
        ASSERT_EQ(mine.experts.has_value(), theirs.experts.has_value());
        if (mine.experts) {
          EXPECT_NEAR(mine.experts->balance_loss, theirs.experts->balance_loss, 2e-5) << name;
        }
      }
      for (size_t i = 0; i < one.evaluations[0].size(); ++i)
        EXPECT_NEAR(result.evaluations[0][i].loss, one.evaluations[0][i].loss, 2e-5) << name;
    }
    if (kSanitized) {
      EXPECT_GT(meshes, 4);
    } else {
      EXPECT_EQ(meshes, whole.model.experts.count > 1 ? 28 : 21);
    }
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
TEST_F(Preferences, OfExpertsAreThoseOfOneRankOnEveryMesh) { compare_meshes(with_experts()); }
TEST_F(Preferences, WithDropoutAreThoseOfOneRankOnEveryMesh) {
  TrainConfig dropped = with_adapters();
  dropped.model.lora.dropout = 0.2;
  dropped.model.dropout_rate = 0.1;
  dropped.steps = 4;
  dropped.eval.interval = 4;
  compare_meshes(dropped);
}

// The loss of a step is that of its pairs, plus the load-balancing loss.
TEST_F(Preferences, OfExpertsBalanceTheLoad) {
  TrainConfig config = with_experts();
  config.eval = {};
  const RunResult balanced = run(config);
  ASSERT_THAT(balanced.codes, Each(ExitCode::kOk)) << balanced.err;
  const StepRecord& first = balanced.records[0][0];
  EXPECT_NEAR(first.loss, std::log(2) + first.experts->balance_loss, 1e-6);
  // Two layers of four with perfect balance have a loss of balance_weight times per_token each.
  EXPECT_GT(first.experts->balance_loss, 0.99 * 2 * 0.1 * 2);
  config.model.experts.balance_weight = 0;
  const RunResult plain = run(config);
  ASSERT_THAT(plain.codes, Each(ExitCode::kOk)) << plain.err;
  EXPECT_NEAR(plain.records[0][0].loss, std::log(2), 1e-6);
  // The more the load-balancing loss weighs, the more even the load becomes.
  const auto imbalance_at = [&](double weight) {
    config.model.experts.balance_weight = weight;
    const RunResult result = run(config);
    return result.records[0].back().experts->balance_loss / weight;
  };
  const double ignored = imbalance_at(1e-6);
  EXPECT_LT(imbalance_at(1), ignored - 1e-3);
}

// Frozen weights in blocks, and GEMMs in 8 bits: the reference model has the same roundings.
TEST_F(Preferences, LearnWithRoundedWeights) {
  TrainConfig blocks = with_adapters(), int8 = config(), fp8 = config();
  blocks.model.lora.weight_type = WeightType::kNf4;
  blocks.model.quantization.type = QuantizationType::kFp8Delayed;
  int8.model.quantization.type = QuantizationType::kInt8;
  fp8.model.quantization.type = QuantizationType::kFp8Current;
  for (const TrainConfig& rounded : {blocks, int8, fp8}) {
    const absl::Status valid = validate(rounded);
    ASSERT_TRUE(valid.ok()) << valid;
    const RunResult result = run(rounded);
    ASSERT_THAT(result.codes, Each(ExitCode::kOk)) << result.err;
    EXPECT_NEAR(result.losses()[0], std::log(2), 1e-6);
    EXPECT_LT(result.losses().back(), 0.62);
  }
}

// Each step has all pairs, so the curves are equal whatever the sequences are.
TEST_F(Preferences, DoNotDependOnPackingAndAccumulation) {
  TrainConfig packed = config();
  packed.eval = {};
  packed.steps = 4;
  packed.per_device_batch_size = 1;
  const std::string note = run(packed).out;
  int sequences = 0;
  ASSERT_EQ(
      std::sscanf(note.substr(note.find(": 40 pairs in ")).c_str(), ": 40 pairs in %d", &sequences),
      1)
      << note;
  ASSERT_LT(sequences, 40) << "several pairs share a sequence";
  packed.per_device_batch_size = sequences;
  TrainConfig separate = packed;
  separate.packing = false;
  separate.per_device_batch_size = 40;
  TrainConfig accumulated = separate;
  accumulated.per_device_batch_size = 10;
  accumulated.gradient_accumulation_steps = 4;
  const RunResult whole = run(packed);
  ASSERT_THAT(whole.codes, Each(ExitCode::kOk)) << whole.err;
  for (const TrainConfig& other : {separate, accumulated}) {
    const RunResult parts = run(other);
    ASSERT_THAT(parts.codes, Each(ExitCode::kOk)) << parts.err;
    for (size_t step = 0; step < whole.losses().size(); ++step) {
      EXPECT_EQ(whole.records[0][step].preferences->pairs, 40);
      EXPECT_NEAR(parts.losses()[step], whole.losses()[step], 2e-5) << step;
      expect_close(*parts.records[0][step].preferences, *whole.records[0][step].preferences,
                   absl::StrCat("step ", step));
    }
  }
  EXPECT_LT(whole.losses().back(), 0.6);
}

// A hinge loss of zero is no reason to stop: target_eval_loss=0 means that there is no target.
TEST_F(Preferences, AreTrainedOnAfterALossOfZero) {
  TrainConfig hinge = config();
  hinge.dpo = {.enabled = true, .loss = DpoLoss::kHinge, .beta = 20};
  const RunResult result = run(hinge);
  ASSERT_THAT(result.codes, Each(ExitCode::kOk)) << result.err;
  ASSERT_EQ(result.evaluations[0].size(), 2U);
  EXPECT_EQ(result.evaluations[0][0].loss, 0);
  EXPECT_EQ(result.records[0].size(), 12U);
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

// The reference model is a trained run, whose checkpoints the resumed run does not contain.
TEST_F(Preferences, ResumeWithTheSameReferenceModelOnly) {
  TrainConfig base = config();
  base.eval = {};
  base.steps = 3;
  base.enable_checkpointing = true;
  base.checkpoint_directory = folder_.file("base");
  ASSERT_THAT(run(base).codes, Each(ExitCode::kOk));
  TrainConfig whole = base;
  whole.steps = 8;
  whole.load_parameters_path = folder_.file("base");
  whole.checkpoint_directory = folder_.file("whole");
  TrainConfig parts = whole;
  parts.checkpoint_directory = folder_.file("parts");
  const RunResult unbroken = run(whole);
  ASSERT_THAT(unbroken.codes, Each(ExitCode::kOk)) << unbroken.err;
  EXPECT_NEAR(unbroken.losses()[0], std::log(2), 1e-6);
  EXPECT_THAT(unbroken.out, HasSubstr("reference model: " + folder_.file("base")));
  EXPECT_THAT(unbroken.out, HasSubstr("parameters are those of the reference model"));
  const RunResult first = run(parts, [](int, const StepRecord& record, auto& stop) {
    if (record.step == 3) stop = true;
  });
  ASSERT_THAT(first.codes, Each(ExitCode::kPreempted)) << first.err;
  TrainConfig other = parts;
  other.load_parameters_path = folder_.file("whole");
  const RunResult refused = run(other);
  EXPECT_THAT(refused.err, HasSubstr("was tuned relative to another reference model"));
  EXPECT_THAT(refused.err, HasSubstr("load_parameters_path=" + folder_.file("whole")));
  other.load_parameters_path.clear();
  EXPECT_THAT(run(other).err, HasSubstr("was tuned relative to another reference model"));
  const RunResult second = run(parts);
  ASSERT_THAT(second.codes, Each(ExitCode::kOk)) << second.err;
  EXPECT_THAT(second.out, HasSubstr("reference model: " + folder_.file("base")));
  EXPECT_THAT(second.out, testing::Not(HasSubstr("parameters are")));
  EXPECT_EQ(checkpoint_bytes(parts.checkpoint_directory + "/8"),
            checkpoint_bytes(whole.checkpoint_directory + "/8"));
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
  EXPECT_THAT(
      message([](TrainConfig& c) { c.model.quantization.type = QuantizationType::kFp8Delayed; }),
      HasSubstr("needs enable_lora=True with quantization=fp8"));
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
