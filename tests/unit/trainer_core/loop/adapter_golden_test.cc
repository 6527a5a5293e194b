// Adapters against PEFT in fp64, with the fixtures of tests/golden/make_lora.py and, for bases in
// blocks, of make_qlora.py.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/paths.h"
#include "tests/unit/trainer_core/golden_file.h"
#include "tests/unit/trainer_core/hugging_face_goldens.h"
#include "trainer_core/checkpoint/merged_source.h"
#include "trainer_core/rank/rank_model.h"
#include "trainer_core/startup/frozen_parameters.h"

namespace muster::trainer {
namespace {

constexpr double kTolerance = 1e-5;  // relative to a tensor's largest element
// Adam divides small gradients by their own magnitude, so it amplifies their rounding errors.
constexpr double kStepsTolerance = 2e-5;

struct GoldenCase {
  std::string model;
  WeightType type = WeightType::kPlain;

  std::string folder() const { return source_dir() + "/tests/golden/lora/" + model; }
  std::string type_name() const { return std::string(name_of(kWeightTypeNames, type)); }
  std::string file() const {
    return type == WeightType::kPlain ? "lora/" + model + "/step.safetensors"
                                      : "qlora/" + model + "_" + type_name() + ".safetensors";
  }
};

class AdapterGolden : public testing::TestWithParam<GoldenCase> {
 protected:
  AdapterGolden()
      : file_(GetParam().file()),
        tokens_(nlohmann::json::parse(
            std::ifstream(hugging_face_golden(GetParam().model) + "/tokens.json"))) {
    auto parts = open_with_base(GetParam().folder());
    EXPECT_TRUE(parts.ok()) << parts.status();
    if (!parts.ok()) return;
    parts_ = *std::move(parts);
    const auto optimizer = file_.metadata("optimizer");
    config_.model = parts_.adapters.model;
    config_.model.lora.weight_type = GetParam().type;
    config_.per_device_batch_size = static_cast<int32_t>(tokens_.size());
    config_.max_target_length = static_cast<int32_t>(tokens_[0].size());
    config_.optimizer.learning_rate = optimizer.at("learning_rate");
    config_.optimizer.b1 = optimizer.at("adam_b1");
    config_.optimizer.b2 = optimizer.at("adam_b2");
    config_.optimizer.eps = optimizer.at("adam_eps");
    config_.optimizer.weight_decay = optimizer.at("adam_weight_decay");
    rank_model_ = std::make_unique<RankModel>(config_, 1);
    const absl::Status read = read_base(*parts_.base, *rank_model_, 1);
    EXPECT_TRUE(read.ok()) << read;
    std::ranges::copy(parts_.adapters.values, model().params().begin());
    for (const auto& sequence : tokens_) {
      for (size_t i = 0; i < sequence.size(); ++i) {
        const bool is_last = i + 1 == sequence.size();
        ids_.push_back(sequence[i]);
        targets_.push_back(is_last ? 0 : sequence[i + 1].get<int32_t>());
        weights_.push_back(is_last ? 0.0F : 1.0F);
      }
    }
  }

  Transformer& model() { return rank_model_->model(); }
  Batch batch() const { return {ids_, targets_, weights_}; }
  LossSum forward_backward() {
    rank_model_->begin_pass({});
    const LossSum sum = model().forward_backward(batch());
    EXPECT_TRUE(rank_model_->finish_passes().ok());
    return sum;
  }

  static void expect_close(std::span<const float> actual, const std::vector<float>& expected,
                           double tolerance, const std::string& name) {
    ASSERT_EQ(actual.size(), expected.size()) << name;
    double largest = 0, difference = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
      largest = std::max(largest, std::abs(double{expected[i]}));
      difference = std::max(difference, std::abs(double{actual[i]} - expected[i]));
    }
    EXPECT_LE(difference, tolerance * largest) << name;
  }
  // Compares the tensors of a block, multiplied by `factor`, with those of the file.
  void expect_tensors(std::span<const float> block, double factor, const std::string& prefix,
                      double tolerance) {
    for (const ParamSpec& spec : parts_.adapters.table) {
      const auto part =
          block.subspan(static_cast<size_t>(spec.offset), static_cast<size_t>(spec.elements()));
      std::vector<float> scaled(part.begin(), part.end());
      for (float& value : scaled) value = static_cast<float>(value * factor);
      expect_close(scaled, file_.tensor<float>(prefix + spec.name), tolerance, prefix + spec.name);
    }
  }

  GoldenFile file_;
  nlohmann::json tokens_;
  AdaptersOnBase parts_;
  TrainConfig config_;
  std::unique_ptr<RankModel> rank_model_;
  std::vector<int32_t> ids_, targets_;
  std::vector<float> weights_;
};

TEST_P(AdapterGolden, LogitsAndGradients) {
  const auto expected = file_.tensor<float>("logits");
  std::vector<float> logits(expected.size());
  model().all_logits(ids_, logits.data());
  expect_close(logits, expected, kTolerance, "logits");
  const LossSum sum = forward_backward();
  const float loss = file_.tensor<float>("loss")[0];
  EXPECT_NEAR(sum.loss / sum.weight, loss, kTolerance * loss);
  expect_tensors(model().grads(), 1 / sum.weight, "grad.", kTolerance);
}

TEST_P(AdapterGolden, OptimizerSteps) {
  const auto steps = file_.metadata("steps").get<int64_t>();
  const double threshold = file_.metadata("optimizer").at("gradient_clipping_threshold");
  for (int64_t t = 1; t <= steps; ++t) {
    const LossSum sum = forward_backward();
    double squares = 0;
    for (const float gradient : model().grads()) squares += double{gradient} * gradient;
    const double norm = std::sqrt(squares) / sum.weight;
    ASSERT_TRUE(rank_model_
                    ->update({.learning_rate = config_.optimizer.learning_rate,
                              .grad_scale = clip_factor(norm, threshold) / sum.weight,
                              .t = t})
                    .ok());
  }
  expect_tensors(model().params(), 1, "param" + std::to_string(steps) + ".", kStepsTolerance);
}

TEST_P(AdapterGolden, MergedWeights) {
  parts_.adapters.model.lora.weight_type = GetParam().type;
  ParameterDescription description = parts_.base->description();
  const MergedSource source(std::move(description), std::move(parts_));
  size_t compared = 0;
  for (const HuggingFaceTensor& tensor : source.tensors()) {
    if (tensor.name.find("_proj.weight") == std::string::npos) continue;
    std::vector<float> merged(static_cast<size_t>(tensor.elements()));
    ASSERT_TRUE(source.read(tensor, merged).ok());
    expect_close(merged, file_.tensor<float>("merged." + tensor.name), 1e-6, tensor.name);
    ++compared;
  }
  EXPECT_GE(compared, 8U);
}

INSTANTIATE_TEST_SUITE_P(Models, AdapterGolden,
                         testing::Values(GoldenCase{"llama_gqa"}, GoldenCase{"llama_bias_tied"},
                                         GoldenCase{"mixtral"},
                                         GoldenCase{"llama_gqa", WeightType::kNf4},
                                         GoldenCase{"llama_gqa", WeightType::kInt8},
                                         GoldenCase{"mixtral", WeightType::kNf4}),
                         [](const auto& test) {
                           return test.param.model + (test.param.type == WeightType::kPlain
                                                          ? ""
                                                          : "_" + test.param.type_name());
                         });

}  // namespace
}  // namespace muster::trainer
