// Preference tuning against TRL's DPOTrainer in fp64, with the fixtures of
// tests/golden/make_dpo.py.
#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/progress/progress_page.h"
#include "tests/paths.h"
#include "tests/unit/trainer_core/golden_file.h"
#include "tests/unit/trainer_core/on_mesh.h"
#include "trainer_core/base/train_mesh.h"
#include "trainer_core/checkpoint/adapters.h"
#include "trainer_core/loop/preference_passes.h"
#include "trainer_core/startup/frozen_parameters.h"

namespace muster::trainer {
namespace {

constexpr double kGoldenTolerance = 1e-5;
constexpr int32_t kLength = 48;  // a sequence with all pairs, and padding

// Compares the state that checkpoints save with its value at construction, at each value of a pass:
// a background save may copy it, or the signal thread save it, at any of them.
class UnchangedState final : public PassObserver {
 public:
  explicit UnchangedState(RankModel& rank_model)
      : state_(rank_model.state().params), before_(state_.begin(), state_.end()) {}

  void computed(const std::string& name, const Tensor&) override {
    ++values_;
    if (!std::ranges::equal(state_, before_)) changed_at_.push_back(name);
  }
  int values() const { return values_; }
  const std::vector<std::string>& changed_at() const { return changed_at_; }

 private:
  const std::span<const float> state_;
  const std::vector<float> before_;
  int values_ = 0;
  std::vector<std::string> changed_at_;
};

class PreferenceGolden : public testing::TestWithParam<std::tuple<const char*, const char*>> {
 protected:
  PreferenceGolden() : file_(std::string("dpo/") + model() + ".safetensors") {
    auto parts = open_with_base(source_dir() + "/tests/golden/lora/" + model());
    EXPECT_TRUE(parts.ok()) << parts.status();
    if (!parts.ok()) return;
    parts_ = *std::move(parts);
    config_.model = parts_.adapters.model;
    config_.per_device_batch_size = 1;
    config_.max_target_length = kLength;
    config_.dataset_type = DatasetType::kShards;
    const auto settings = file_.metadata("cases").at(loss());
    const std::string loss = settings.at("dpo_loss_type");
    config_.dpo = {.enabled = true,
                   .loss = static_cast<DpoLoss>(std::ranges::find(kDpoLossNames, loss) -
                                                kDpoLossNames.begin()),
                   .beta = settings.at("dpo_beta"),
                   .label_smoothing = settings.at("dpo_label_smoothing")};
  }

  static const char* model() { return std::get<0>(GetParam()); }
  static std::string loss() { return std::get<1>(GetParam()); }

  // Returns the sequence with all pairs, one after the other.
  PreferenceBatch batch() const {
    PreferenceBatch batch;
    float label = 1;
    for (const auto& pair : file_.metadata("pairs")) {
      const std::vector<int32_t> prompt = pair[0];
      for (const size_t answer : {1, 2}) {
        std::vector<int32_t> ids = prompt;
        for (const auto& id : pair[answer]) ids.push_back(id);
        const auto start = static_cast<int32_t>(batch.tokens.size());
        for (size_t i = 0; i + 1 < ids.size(); ++i) {
          batch.tokens.push_back(ids[i]);
          batch.targets.push_back(ids[i + 1]);
          batch.starts.push_back(start);
          batch.labels.push_back(i + 1 < prompt.size() ? 0 : label);
        }
        label = -label;
      }
      label = std::abs(label) + 1;
    }
    batch.starts.resize(kLength, static_cast<int32_t>(batch.tokens.size()));
    batch.tokens.resize(kLength);
    batch.targets.resize(kLength);
    batch.labels.resize(kLength);
    batch.weights.resize(kLength);
    batch.shares.resize(kLength);
    return batch;
  }

  // Runs `test` on each rank of the mesh, with the golden's base and adapters.
  void on_each_rank(const std::function<void(RankModel&, PreferencePasses&)>& test) {
    on_mesh(mesh_of(config_.mesh), [&](ProcessGroups& groups) {
      const auto page = ProgressWriter::anonymous({});
      std::ostringstream out;
      StopSignals signals;
      const TrainContext context{.groups = groups,
                                 .page = *page,
                                 .out = out,
                                 .err = out,
                                 .signals = signals,
                                 .on_step = nullptr};
      RankModel rank_model(config_, 1, Staging::kNo, groups);
      ASSERT_TRUE(read_base(*parts_.base, rank_model, 1).ok());
      std::ranges::copy(parts_.adapters.values, rank_model.model().params().begin());
      rank_model.clear_reference();
      PreferencePasses passes(config_, context, rank_model, Positions::first(kLength), 2);
      test(rank_model, passes);
    });
  }

  void compare(RankModel& rank_model, PreferencePasses& passes) {
    std::vector<PreferenceBatch> batches = {batch()};
    UnchangedState state(rank_model);
    rank_model.model().observe(&state);
    const auto sums = passes.score(batches, PreferencePasses::ScoreFor::kGradient);
    rank_model.model().observe(nullptr);
    EXPECT_GT(state.values(), 0);
    EXPECT_EQ(state.changed_at(), std::vector<std::string>());
    ASSERT_TRUE(sums.ok()) << sums.status();
    const std::string name = loss();
    ASSERT_EQ(sums->pairs, 2);
    const double mean = file_.tensor<float>(name + ".loss")[0];
    EXPECT_NEAR(sums->loss / sums->pairs, mean, kGoldenTolerance * mean);
    const auto rewards = file_.tensor<float>(name + ".rewards");
    EXPECT_NEAR(sums->chosen_reward / sums->pairs, rewards[0], 1e-5);
    EXPECT_NEAR(sums->rejected_reward / sums->pairs, rewards[1], 1e-5);
    const auto policy = file_.tensor<float>("policy");
    // Those of IPO are means over the tokens of an answer.
    const auto tokens = [&](float label) {
      return name == "ipo" ? static_cast<double>(std::ranges::count(batches[0].labels, label)) : 1;
    };
    EXPECT_NEAR(sums->chosen_logps, policy[0] / tokens(1) + policy[2] / tokens(2), 1e-3);
    EXPECT_NEAR(sums->rejected_logps, policy[1] / tokens(-1) + policy[3] / tokens(-2), 1e-3);
    for (const float label : {1.0F, 2.0F}) {
      double share = 0;
      for (size_t i = 0; i < batches[0].labels.size(); ++i)
        if (std::abs(batches[0].labels[i]) == label) share += batches[0].shares[i];
      EXPECT_NEAR(share, 1, 1e-6);
    }
    (void)rank_model.model().forward_backward(batches[0].batch());
    for (const ParamSpec& spec : parts_.adapters.table) {
      const auto expected = file_.tensor<float>(name + ".grad." + spec.name);
      const auto actual = rank_model.model().grads().subspan(static_cast<size_t>(spec.offset),
                                                             static_cast<size_t>(spec.elements()));
      ASSERT_EQ(actual.size(), expected.size()) << spec.name;
      double largest = 0, difference = 0;
      for (size_t i = 0; i < expected.size(); ++i) {
        largest = std::max(largest, std::abs(double{expected[i]}));
        difference = std::max(difference, std::abs(actual[i] / sums->pairs - expected[i]));
      }
      EXPECT_GT(largest, 0) << spec.name;
      EXPECT_LE(difference, kGoldenTolerance * largest) << spec.name;
    }
  }

  GoldenFile file_;
  AdaptersOnBase parts_;
  TrainConfig config_;
};

TEST_P(PreferenceGolden, LossRewardsAndGradients) {
  on_each_rank(
      [&](RankModel& rank_model, PreferencePasses& passes) { compare(rank_model, passes); });
}

// The passes that score the policy and that compute its gradient drop the same values.
TEST_P(PreferenceGolden, GradientsAreOfTheScoredModel) {
  config_.model.lora.dropout = 0.4;
  config_.model.dropout_rate = 0.2;
  on_each_rank([&](RankModel& rank_model, PreferencePasses& passes) {
    std::vector<PreferenceBatch> batches = {batch()};
    batches[0].dropout = {.seed = 3, .first_sample = 5};
    const auto evaluated = passes.score(batches, PreferencePasses::ScoreFor::kEvaluation);
    const auto scored = passes.score(batches, PreferencePasses::ScoreFor::kGradient);
    ASSERT_TRUE(evaluated.ok() && scored.ok());
    EXPECT_GT(std::abs(scored->chosen_logps - evaluated->chosen_logps), 1e-3);
    // The cross-entropies of the pass with gradients, and of the pass that scored the policy.
    const auto of_chosen = [&](PreferenceBatch& one, float chosen, float rejected) {
      for (size_t i = 0; i < one.labels.size(); ++i)
        one.weights[i] = one.labels[i] > 0 ? chosen : one.labels[i] < 0 ? rejected : 0;
      return rank_model.model().forward_backward(one.batch()).loss;
    };
    if (loss() == "ipo") return;  // its log-probabilities are means over tokens
    EXPECT_NEAR(of_chosen(batches[0], 1, 0), -scored->chosen_logps, 1e-3);
    EXPECT_NEAR(of_chosen(batches[0], 0, 1), -scored->rejected_logps, 1e-3);
  });
}

INSTANTIATE_TEST_SUITE_P(Losses, PreferenceGolden,
                         testing::Combine(testing::Values("llama_gqa", "mixtral"),
                                          testing::Values("sigmoid", "smoothed", "hinge", "ipo")),
                         [](const auto& test) {
                           return std::string(std::get<0>(test.param)) + "_" +
                                  std::get<1>(test.param);
                         });

}  // namespace
}  // namespace muster::trainer
