#include "trainer_core/recovery/not_finite.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <thread>

#include <gtest/gtest.h>

#include "tests/unit/trainer_core/train_helpers.h"
#include "trainer_core/comm/local.h"

namespace muster::trainer {
namespace {

// Returns the sentence of each of found.size() ranks, if these have found something.
std::vector<std::string> names(const StepTail& reduced, const std::vector<bool>& found) {
  const int size = static_cast<int>(found.size());
  LocalWorld world(size, std::chrono::milliseconds(60'000));
  std::vector<std::string> result(found.size());
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank, r = static_cast<size_t>(rank)] {
      auto page = ProgressWriter::anonymous({.rank = rank, .world_size = size});
      auto group = world.join(rank, page.get(), "data");
      result[r] = name_not_finite(*group, reduced, found[r]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return result;
}

using testing::Each;

TEST(NotFinite, ALossIsNamedWithoutACollective) {
  LocalWorld world(1, std::chrono::milliseconds(60'000));
  auto page = ProgressWriter::anonymous({.rank = 0, .world_size = 1});
  auto group = world.join(0, page.get(), "data");
  EXPECT_EQ(name_not_finite(*group, {.bad_ranks = 1, .bad_rank_sum = 3}, false),
            "the loss of rank 3");
  EXPECT_EQ(name_not_finite(*group, {.bad_ranks = 1, .bad_rank_sum = 0}, true),
            "the loss of rank 0");
}

TEST(NotFinite, AGradientOfOneRankIsNamedOnAllRanks) {
  EXPECT_THAT(names({}, {false, false, true, false}), Each("the gradient of rank 2"));
  EXPECT_THAT(names({}, {true, false}), Each("the gradient of rank 0"));
  EXPECT_THAT(names({}, {true, false, true}), Each("the gradient of 2 of 3 ranks"));
}

TEST(NotFinite, GradientsThatOverflowOnlyTogether) {
  EXPECT_THAT(names({}, {false, false}), Each("the sum of all ranks' gradients"));
}

// One rank of the tiny model with two micro-batches.
class FirstNotFinite : public testing::Test {
 protected:
  FirstNotFinite() {
    config_.per_device_batch_size = 2;
    config_.gradient_accumulation_steps = 2;
    TrainingData none;  // synthetic data
    data_ = StepData::training(config_, 0, none);
    rank_model_ = std::make_unique<RankModel>(config_, 1);
    init_params(rank_model_->table(), 0, rank_model_->model().params().data());
  }

  float& element(const std::string& name, int64_t i) {
    for (const ParamSpec& spec : rank_model_->table()) {
      if (spec.name == name)
        return rank_model_->model().params()[static_cast<size_t>(spec.offset + i)];
    }
    ADD_FAILURE() << name;
    return rank_model_->model().params()[0];
  }
  std::string found() {
    const auto first = find_not_finite(*rank_model_, *data_, 40);
    EXPECT_TRUE(first.ok()) << first.status();
    return first.ok() && first->has_value() ? describe(**first) : "";
  }

  TrainConfig config_ = tiny_config(1);
  std::unique_ptr<StepData> data_;
  std::unique_ptr<RankModel> rank_model_;
};

TEST_F(FirstNotFinite, IsEmptyIfAllIsFinite) { EXPECT_EQ(found(), ""); }

TEST_F(FirstNotFinite, AParameterComesFirst) {
  element("model.layers.1.mlp.up_proj.weight", 5) = std::nanf("");
  EXPECT_THAT(found(), testing::StartsWith("the first tensor that is not finite is parameter "
                                           "model.layers.1.mlp.up_proj.weight"));
}

// The product of two finite values overflows.
TEST_F(FirstNotFinite, ForwardValuesComeNext) {
  element("model.layers.1.mlp.up_proj.weight", 5) = 3e38F;
  element("model.layers.1.post_attention_layernorm.weight", 5) = 100;
  EXPECT_EQ(found(),
            "the first tensor that is not finite is layer1.gate_up, in the batch of global samples "
            "40 to 41");
}

TEST_F(FirstNotFinite, NamesTheMicroBatch) {
  const auto token_of = [&](int32_t micro_batch) {
    const auto batch = data_->load(0, micro_batch);
    return std::vector<int32_t>(batch->tokens.begin(), batch->tokens.end());
  };
  const std::vector<int32_t> first = token_of(0);
  for (const int32_t token : token_of(1)) {
    if (std::find(first.begin(), first.end(), token) != first.end()) continue;
    // Only the second micro-batch reads this row, whose first element meets the first norm's gain.
    for (int64_t row = 0; row < config_.model.vocab_size; ++row)
      element("model.embed_tokens.weight", row * config_.model.emb_dim) = row == token ? 100 : 0;
    element("model.layers.0.input_layernorm.weight", 0) = 3e38F;
    // The gradients of both micro-batches meet the same gain.
    for (int64_t i = 0; i < int64_t{config_.model.vocab_size} * config_.model.emb_dim; ++i)
      element("lm_head.weight", i) *= 1e-6F;
    EXPECT_EQ(found(),
              "the first tensor that is not finite is layer0.normed1, in the batch of global "
              "samples 42 to 43");
    return;
  }
  FAIL() << "both micro-batches have the same tokens";
}

TEST_F(FirstNotFinite, GradientsComeLastFromTheHead) {
  // The forward pass is all zeros; the gradient overflows at the last norm's gain.
  for (int64_t i = 0; i < int64_t{config_.model.vocab_size} * config_.model.emb_dim; ++i)
    element("model.embed_tokens.weight", i) = 0;
  for (int64_t i = 0; i < config_.model.emb_dim; ++i) element("model.norm.weight", i) = 1e38F;
  EXPECT_THAT(found(), testing::HasSubstr("is gradient of model.layers.1.mlp.down_proj.weight"));
}

}  // namespace
}  // namespace muster::trainer
