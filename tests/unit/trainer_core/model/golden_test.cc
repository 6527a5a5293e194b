// The model and optimizer against PyTorch's autograd in fp64, with the fixtures of
// tests/golden/make_reference.py.
#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <ostream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/unit/trainer_core/golden_file.h"
#include "tests/unit/trainer_core/model/test_decoder.h"
#include "tests/unit/trainer_core/model/transformer_fixture.h"
#include "trainer_core/optim/optimizer.h"

namespace muster::trainer {
namespace {

constexpr double kLogitsTolerance = 1e-4;

struct GoldenCase {
  const char* file;
  RematPolicy remat;
  int32_t threads;

  friend std::ostream& operator<<(std::ostream& out, const GoldenCase& c) {
    return out << c.file << (c.remat == RematPolicy::kFull ? "_full_" : "_none_") << c.threads;
  }
};

using Mutation = std::function<void(ModelConfig&)>;

class Golden : public testing::TestWithParam<GoldenCase> {
 protected:
  Golden() : Golden(GetParam()) {}
  // `mutate` changes the model before the plan is made.
  explicit Golden(
      const GoldenCase& c, const Mutation& mutate = [](ModelConfig&) {})
      : file_(c.file),
        config_(model_config(file_.metadata("config"), mutate)),
        test_(config_, file_.metadata("config").at("batch"), file_.metadata("config").at("seq"),
              c.remat, c.threads),
        tokens_(file_.tensor<int32_t>("tokens")),
        targets_(file_.tensor<int32_t>("targets")),
        weights_(file_.tensor<float>("weights")) {
    const std::vector<float> params = block("param/");
    std::copy(params.begin(), params.end(), test_.model.params().begin());
  }

  // The file has the keys of a train config that define a model.
  static ModelConfig model_config(const nlohmann::json& json, const Mutation& mutate) {
    TrainConfig plain;
    plain.model = small_config(4, 2, false);
    plain.optimizer.schedule_steps = plain.steps = plain.max_target_length = 1;
    plain.enable_checkpointing = false;
    nlohmann::json all = to_json(plain);
    all.update(json.at("model"));
    const auto config = train_config_from_json(all);
    EXPECT_TRUE(config.ok()) << config.status();
    ModelConfig model = config->model;
    mutate(model);
    return model;
  }

  double logits_error() {
    const std::vector<float> expected = file_.tensor<float>("logits");
    std::vector<float> all(expected.size());
    test_.model.all_logits(tokens_, all.data());
    double largest = 0;
    for (size_t i = 0; i < all.size(); ++i)
      largest = std::max(largest, std::abs(double{all[i]} - expected[i]));
    return largest;
  }

  // Returns the flat block of the file's tensors under `prefix`.
  std::vector<float> block(const std::string& prefix) const {
    std::vector<float> values;
    for (const ParamSpec& spec : test_.plan.params) {
      const std::vector<float> tensor = file_.tensor<float>(prefix + spec.name);
      EXPECT_EQ(static_cast<int64_t>(tensor.size()), spec.elements()) << spec.name;
      values.insert(values.end(), tensor.begin(), tensor.end());
    }
    return values;
  }

  static double largest_of(std::span<const float> values) {
    double largest = 0;
    for (const float value : values) largest = std::max(largest, std::abs(double{value}));
    return largest;
  }
  static std::span<const float> rows(const ParamSpec& spec, std::span<const float> block) {
    return block.subspan(static_cast<size_t>(spec.offset), static_cast<size_t>(spec.elements()));
  }

  // The error that fp32 may cause in each parameter in one Adam step. The update is g / (|g| +
  // eps), which is steep where |g| is at most eps, and the first gradient has an error of about
  // 1e-6 of its tensor's largest element or 1e-7 of the model's. (Without RoPE a key's bias has no
  // gradient at all: the softmax does not depend on it.) Zero elsewhere.
  std::vector<double> adam_slack(double scale, double eps, double learning_rate) const {
    const std::vector<float> sums = block("grad/");
    const double floor = 1e-7 * largest_of(sums);
    std::vector<double> slack(sums.size());
    for (const ParamSpec& spec : test_.plan.params) {
      const double off = scale * std::max(1e-6 * largest_of(rows(spec, sums)), floor);
      for (int64_t i = spec.offset; i < spec.offset + spec.elements(); ++i) {
        const auto at = static_cast<size_t>(i);
        if (sums[at] == 0) continue;  // a token that does not occur: zero in any arithmetic
        const double denominator = std::abs(scale * sums[at]) + eps;
        slack[at] = learning_rate * std::min(off * eps / (denominator * denominator), 2.0);
      }
    }
    return slack;
  }

  // Returns the largest difference within each tensor, relative to the tensor's largest element or
  // 1e-6 of the model's. Each element may additionally differ by its `slack`, if given.
  void expect_close(std::span<const float> actual, const std::string& prefix, double tolerance,
                    const std::vector<double>& slack = {}) const {
    const std::vector<float> expected = block(prefix);
    const double floor = 1e-6 * largest_of(expected);
    for (const ParamSpec& spec : test_.plan.params) {
      double difference = 0;
      for (int64_t i = spec.offset; i < spec.offset + spec.elements(); ++i) {
        const auto at = static_cast<size_t>(i);
        const double free = slack.empty() ? 0 : slack[at];
        difference =
            std::max(difference, std::abs(static_cast<double>(actual[at]) - expected[at]) - free);
      }
      EXPECT_LE(difference, std::max(tolerance * largest_of(rows(spec, expected)), floor))
          << prefix << spec.name;
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

TEST_P(Golden, Logits) { EXPECT_LE(logits_error(), kLogitsTolerance); }

// Files whose models drop no token: in decoding, tokens arrive one by one and do not compete for
// experts.
class GoldenDecoding : public Golden {};

TEST_P(GoldenDecoding, PositionByPosition) {
  const std::vector<float> expected = file_.tensor<float>("logits");
  const auto vocab = static_cast<size_t>(config_.vocab_size);
  const auto seq_len = static_cast<size_t>(test_.plan.seq_len);
  const auto batch = static_cast<size_t>(test_.plan.batch);
  const TransformerPlan plan =
      plan_decoder(config_, test_.plan.batch, cache_for(test_.plan.batch, test_.plan.seq_len),
                   GetParam().threads);
  Arena arena(plan.memory);
  store_state(plan, arena, test_.model.params());
  TestDecoder decoder(plan, arena, *test_.ops);
  std::vector<int32_t> column(batch);
  std::vector<float> logits(batch * vocab);
  for (size_t position = 0; position < seq_len; ++position) {
    for (size_t b = 0; b < batch; ++b) column[b] = tokens_[b * seq_len + position];
    decoder.extend(column, logits.data());
    for (size_t i = 0; i < logits.size(); ++i) {
      const size_t row = i / vocab * seq_len + position;
      ASSERT_NEAR(logits[i], expected[row * vocab + i % vocab], kLogitsTolerance) << "row " << row;
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
  const auto optimizer = Optimizer::make(config, ShardLayout::whole(test_.plan.params));
  std::vector<float> state(static_cast<size_t>(optimizer->state_elements()));
  std::vector<double> slack;
  for (int64_t t = 1; t <= 10; ++t) {
    const LossSum loss = test_.model.forward_backward(batch());
    const Tensor grads = Tensor::f32(test_.model.grads().data(), {static_cast<int64_t>(n)});
    const double norm = std::sqrt(test_.ops->sum_of_squares(grads)) / loss.weight;
    const double scale = clip_factor(norm, json.at("clipping_threshold")) / loss.weight;
    const absl::Status updated =
        optimizer->update(*test_.ops, {json.at("learning_rate"), scale, t},
                          {test_.model.params(), test_.model.grads(), state});
    ASSERT_TRUE(updated.ok());
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
    testing::Values(GoldenCase{"reference_llama_gqa_untied.safetensors", RematPolicy::kNone, 1},
                    GoldenCase{"reference_llama_gqa_untied.safetensors", RematPolicy::kFull, 2},
                    GoldenCase{"reference_llama_mqa_tied.safetensors", RematPolicy::kNone, 2},
                    GoldenCase{"reference_llama_mqa_tied.safetensors", RematPolicy::kFull, 1},
                    GoldenCase{"reference_llama_mha_untied.safetensors", RematPolicy::kFull, 2},
                    GoldenCase{"reference_pax_gpt.safetensors", RematPolicy::kNone, 1},
                    GoldenCase{"reference_pax_gpt.safetensors", RematPolicy::kFull, 2},
                    GoldenCase{"reference_pax_llama.safetensors", RematPolicy::kNone, 1},
                    GoldenCase{"reference_gemma_capped.safetensors", RematPolicy::kNone, 2},
                    GoldenCase{"reference_gemma_capped.safetensors", RematPolicy::kFull, 1},
                    GoldenCase{"reference_relu_window.safetensors", RematPolicy::kNone, 2},
                    GoldenCase{"reference_glam.safetensors", RematPolicy::kNone, 2},
                    GoldenCase{"reference_glam.safetensors", RematPolicy::kFull, 1},
                    GoldenCase{"reference_glam_dropless.safetensors", RematPolicy::kNone, 1},
                    GoldenCase{"reference_glam_dropless.safetensors", RematPolicy::kFull, 2},
                    GoldenCase{"reference_maxtext_default.safetensors", RematPolicy::kNone, 2},
                    GoldenCase{"reference_maxtext_default.safetensors", RematPolicy::kFull, 1},
                    GoldenCase{"reference_mixtral.safetensors", RematPolicy::kNone, 1},
                    GoldenCase{"reference_mixtral.safetensors", RematPolicy::kFull, 2},
                    GoldenCase{"reference_moe_capacity.safetensors", RematPolicy::kNone, 1},
                    GoldenCase{"reference_moe_capacity.safetensors", RematPolicy::kFull, 2}));

INSTANTIATE_TEST_SUITE_P(
    Files, GoldenDecoding,
    testing::Values(GoldenCase{"reference_llama_gqa_untied.safetensors", RematPolicy::kNone, 2},
                    GoldenCase{"reference_llama_mqa_tied.safetensors", RematPolicy::kNone, 1},
                    GoldenCase{"reference_llama_mha_untied.safetensors", RematPolicy::kNone, 2},
                    GoldenCase{"reference_pax_gpt.safetensors", RematPolicy::kNone, 1},
                    GoldenCase{"reference_pax_llama.safetensors", RematPolicy::kNone, 1},
                    GoldenCase{"reference_gemma_capped.safetensors", RematPolicy::kNone, 2},
                    GoldenCase{"reference_relu_window.safetensors", RematPolicy::kNone, 2},
                    GoldenCase{"reference_glam_dropless.safetensors", RematPolicy::kNone, 2},
                    GoldenCase{"reference_maxtext_default.safetensors", RematPolicy::kNone, 2},
                    GoldenCase{"reference_mixtral.safetensors", RematPolicy::kNone, 1}));

// Common mistakes in ports of GLaM; debug_step_test.cc has those of Hugging Face's families.
class Mutated : public Golden {
 public:
  explicit Mutated(
      const char* file, const Mutation& mutate = [](ModelConfig&) {})
      : Golden({file, RematPolicy::kNone, 1}, mutate) {}
  void TestBody() override {}

  // `change` receives each layer's table of relative biases (heads, buckets).
  template <class Change>
  Mutated& change_biases(const Change& change) {
    for (const ParamSpec& spec : test_.plan.params) {
      if (!spec.name.ends_with("relative_attention_bias.weight")) continue;
      change(test_.model.params().subspan(static_cast<size_t>(spec.offset),
                                          static_cast<size_t>(spec.elements())),
             spec.shape[0], spec.shape[1]);
    }
    return *this;
  }
  using Golden::logits_error;
};

// Reads (heads, buckets) as if it were (buckets, heads), the layout of Hugging Face's T5.
void transpose(std::span<float> table, int64_t heads, int64_t buckets) {
  const std::vector<float> from(table.begin(), table.end());
  for (int64_t i = 0; i < heads * buckets; ++i)
    table[static_cast<size_t>(i)] = from[static_cast<size_t>(i % buckets * heads + i / buckets)];
}

TEST(Mutations, OfGlamAreDetected) {
  for (const char* file : {"reference_glam.safetensors", "reference_glam_dropless.safetensors"}) {
    EXPECT_LE(Mutated(file).logits_error(), kLogitsTolerance);
    const auto expect_noticed = [&](const char* what, double error) {
      EXPECT_GT(error, 10 * kLogitsTolerance) << file << ": " << what;
    };
    const auto of_config = [&](const Mutation& mutate) {
      return Mutated(file, mutate).logits_error();
    };
    expect_noticed("the longest distance is one off",
                   of_config([](ModelConfig& m) { ++m.relative_buckets.max_distance; }));
    expect_noticed("no zero in the softmax",
                   of_config([](ModelConfig& m) { m.attention_extra_zero = false; }));
    expect_noticed("scores are scaled", of_config([](ModelConfig& m) { m.query_scale = 0; }));
    expect_noticed("experts have the MLP's activation",
                   of_config([](ModelConfig& m) { m.experts.activation = m.activation; }));
    const auto of_biases = [&](const auto& change) {
      return Mutated(file).change_biases(change).logits_error();
    };
    expect_noticed("a bucket further", of_biases([](auto table, int64_t heads, int64_t buckets) {
                     for (auto row = table.begin(); heads-- > 0; row += buckets)
                       std::rotate(row, row + 1, row + buckets);
                   }));
    expect_noticed("another head's biases", of_biases([](auto table, int64_t, int64_t buckets) {
                     std::ranges::rotate(table, table.begin() + buckets);
                   }));
    expect_noticed("a transposed table", of_biases(transpose));
    expect_noticed("no biases",
                   of_biases([](auto table, int64_t, int64_t) { std::ranges::fill(table, 0.0F); }));
  }
}

}  // namespace
}  // namespace muster::trainer
