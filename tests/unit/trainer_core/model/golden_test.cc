// The model and optimizer against PyTorch's autograd in fp64: tests/golden/make_llama.py made the fixtures.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <ostream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/trainer_core/model/golden_file.h"
#include "tests/unit/trainer_core/model/transformer_fixture.h"
#include "trainer_core/optim/adamw.h"

namespace muster::trainer {
namespace {

struct Case {
  const char* file;
  RematPolicy remat;
  int32_t threads;

  friend std::ostream& operator<<(std::ostream& out, const Case& c) {
    return out << c.file << (c.remat == RematPolicy::kFull ? "_full_" : "_none_") << c.threads;
  }
};

class Golden : public testing::TestWithParam<Case> {
 protected:
  Golden()
      : file_(GetParam().file),
        config_(model_config(file_.metadata("config"))),
        test_(config_, file_.metadata("config").at("batch"), file_.metadata("config").at("seq"),
              GetParam().remat, GetParam().threads),
        tokens_(file_.tensor<int32_t>("tokens")),
        targets_(file_.tensor<int32_t>("targets")),
        weights_(file_.tensor<float>("weights")) {
    const std::vector<float> params = block("param/");
    std::copy(params.begin(), params.end(), test_.model.params().begin());
  }

  static ModelConfig model_config(const nlohmann::json& json) {
    ModelConfig config;
    config.vocab_size = json.at("vocab");
    config.emb_dim = json.at("emb");
    config.num_layers = json.at("layers");
    config.num_query_heads = json.at("heads");
    config.num_kv_heads = json.at("kv_heads");
    config.head_dim = json.at("head_dim");
    config.mlp_dim = json.at("mlp");
    config.norm_epsilon = json.at("eps");
    config.rope_max_timescale = json.at("theta");
    config.logits_via_embedding = json.at("tied");
    return config;
  }

  // The flat block of the file's tensors under `prefix`.
  std::vector<float> block(const std::string& prefix) const {
    std::vector<float> values;
    for (const ParamSpec& spec : test_.plan.params) {
      const std::vector<float> tensor = file_.tensor<float>(prefix + spec.name);
      EXPECT_EQ(static_cast<int64_t>(tensor.size()), spec.elements()) << spec.name;
      values.insert(values.end(), tensor.begin(), tensor.end());
    }
    return values;
  }

  // What a difference in the first gradient, 1e-6 of its tensor's largest element, may do to each parameter in one step
  // of Adam: its update is g / (|g| + eps), which is steep where |g| is no larger than eps. Nothing anywhere else.
  std::vector<double> adam_slack(double scale, double eps, double learning_rate) const {
    const std::vector<float> sums = block("grad/");
    std::vector<double> slack(sums.size());
    for (const ParamSpec& spec : test_.plan.params) {
      const auto first = static_cast<size_t>(spec.offset);
      const auto last = first + static_cast<size_t>(spec.elements());
      double largest = 0;
      for (size_t i = first; i < last; ++i) largest = std::max(largest, std::abs(scale * sums[i]));
      for (size_t i = first; i < last; ++i) {
        if (sums[i] == 0) continue;  // a token that does not occur: zero in any arithmetic
        const double denominator = std::abs(scale * sums[i]) + eps;
        const double change = 1e-6 * largest * eps / (denominator * denominator);
        slack[i] = learning_rate * std::min(change, 2.0);
      }
    }
    return slack;
  }

  // Largest difference within each tensor, relative to the tensor's largest element. Each element may differ by its
  // `slack` besides, where there is one.
  void expect_close(std::span<const float> actual, const std::string& prefix, double tolerance,
                    const std::vector<double>& slack = {}) const {
    const std::vector<float> expected = block(prefix);
    for (const ParamSpec& spec : test_.plan.params) {
      double largest = 0, difference = 0;
      for (int64_t i = spec.offset; i < spec.offset + spec.elements(); ++i) {
        const auto at = static_cast<size_t>(i);
        largest = std::max(largest, std::abs(static_cast<double>(expected[at])));
        const double free = slack.empty() ? 0 : slack[at];
        difference =
            std::max(difference, std::abs(static_cast<double>(actual[at]) - expected[at]) - free);
      }
      EXPECT_LE(difference, tolerance * largest) << prefix << spec.name;
    }
  }

  Batch batch() const { return {tokens_, targets_, weights_}; }

  GoldenFile file_;
  ModelConfig config_;
  TestModel test_;
  std::vector<int32_t> tokens_, targets_;
  std::vector<float> weights_;
};

TEST_P(Golden, Loss) {
  const double expected = file_.tensor<float>("loss")[0];
  const LossSum forward = test_.model.forward(batch());
  EXPECT_NEAR(forward.loss / forward.weight, expected, 1e-6 * expected);
  const LossSum both = test_.model.forward_backward(batch());
  EXPECT_EQ(both.loss, forward.loss);
  EXPECT_EQ(both.weight, std::accumulate(weights_.begin(), weights_.end(), 0.0));
}

TEST_P(Golden, Logits) {
  const std::vector<float> expected = file_.tensor<float>("logits");
  const auto vocab = static_cast<size_t>(config_.vocab_size);
  const auto seq_len = static_cast<size_t>(test_.plan.seq_len);
  std::vector<float> actual(static_cast<size_t>(test_.plan.batch) * vocab);
  for (size_t position = 0; position < seq_len; ++position) {
    test_.model.logits(tokens_, static_cast<int32_t>(position), actual.data());
    for (size_t i = 0; i < actual.size(); ++i) {
      const size_t row = i / vocab * seq_len + position;
      ASSERT_NEAR(actual[i], expected[row * vocab + i % vocab], 1e-4) << "row " << row;
    }
  }
}

TEST_P(Golden, Gradients) {
  test_.model.forward_backward(batch());
  expect_close(test_.model.grads(), "grad/", 1e-4);
}

TEST_P(Golden, AdamW) {
  const nlohmann::json json = file_.metadata("optimizer");
  OptimizerConfig config;
  config.b1 = json.at("b1");
  config.b2 = json.at("b2");
  config.eps = json.at("eps");
  config.weight_decay = json.at("weight_decay");
  const auto n = test_.model.params().size();
  const AdamWBlocks blocks{test_.model.params(),
                           test_.model.grads(),
                           {test_.arena.f32(test_.plan.adam_m), n},
                           {test_.arena.f32(test_.plan.adam_v), n}};
  std::vector<double> slack;
  for (int64_t t = 1; t <= 10; ++t) {
    const LossSum loss = test_.model.forward_backward(batch());
    const Tensor grads = Tensor::f32(test_.model.grads().data(), {static_cast<int64_t>(n)});
    const double norm = std::sqrt(test_.ops->sum_of_squares(grads)) / loss.weight;
    const double scale = clip_factor(norm, json.at("clipping_threshold")) / loss.weight;
    adamw_update(*test_.ops, test_.plan.params, config, json.at("learning_rate"), scale, t, blocks);
    if (t > 1) continue;
    slack = adam_slack(scale, config.eps, json.at("learning_rate"));
    expect_close(test_.model.params(), "adam1/", 1e-5, slack);
    // Few elements are that steep: the slack hides no wrong optimizer.
    const double percent_of_a_step = 0.01 * json.at("learning_rate").get<double>();
    const auto loose = std::count_if(slack.begin(), slack.end(),
                                     [&](double free) { return free > percent_of_a_step; });
    EXPECT_LT(loose, static_cast<int64_t>(n) / 50);
    for (double& s : slack) s *= 10;
  }
  expect_close(test_.model.params(), "adam10/", 1e-5, slack);
}

INSTANTIATE_TEST_SUITE_P(
    Files, Golden,
    testing::Values(Case{"llama_gqa_untied.safetensors", RematPolicy::kNone, 1},
                    Case{"llama_gqa_untied.safetensors", RematPolicy::kFull, 2},
                    Case{"llama_mqa_tied.safetensors", RematPolicy::kNone, 2},
                    Case{"llama_mqa_tied.safetensors", RematPolicy::kFull, 1},
                    Case{"llama_mha_untied.safetensors", RematPolicy::kFull, 2}));

}  // namespace
}  // namespace muster::trainer
