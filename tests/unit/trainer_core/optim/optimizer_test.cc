#include "trainer_core/optim/optimizer.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <gtest/gtest.h>

#include "common/random/philox.h"
#include "tests/unit/trainer_core/golden_file.h"
#include "trainer_core/base/bf16.h"

namespace muster::trainer {
namespace {

using testing::ElementsAre;

std::vector<ParamSpec> table_of(
    const std::vector<std::pair<std::string, std::vector<int64_t>>>& shapes) {
  std::vector<ParamSpec> table;
  int64_t offset = 0;
  for (const auto& [name, shape] : shapes) {
    ParamSpec spec;
    spec.name = name;
    spec.shape = shape;
    spec.offset = offset;
    offset += spec.elements();
    table.push_back(spec);
  }
  return table;
}

// A model's blocks and its optimizer.
struct Model {
  Model(const OptimizerConfig& config, std::vector<ParamSpec> rows, int threads = 1)
      : table(std::move(rows)),
        optimizer(Optimizer::make(config, ShardLayout::whole(table))),
        ops(cpu_ops(threads)),
        params(static_cast<size_t>(parameter_count(table))),
        grads(params.size()),
        state(static_cast<size_t>(optimizer->state_elements())) {}

  void update(const UpdateStep& step) {
    EXPECT_TRUE(optimizer->update(*ops, step, {params, grads, state}).ok());
  }

  std::vector<ParamSpec> table;
  std::unique_ptr<Optimizer> optimizer;
  std::unique_ptr<Ops> ops;
  std::vector<float> params, grads, state;
};

std::vector<std::string> state_of(const OptimizerConfig& config,
                                  const std::vector<ParamSpec>& table) {
  std::vector<std::string> rows;
  const auto optimizer = Optimizer::make(config, ShardLayout::whole(table));
  EXPECT_EQ(optimizer->state().held, boxes_of_rows(optimizer->state().tensors));
  EXPECT_EQ(optimizer->state().written, optimizer->state().held);
  for (const TensorRow& row : optimizer->state().tensors)
    rows.push_back(absl::StrCat(row.name, "@", row.offset, " ", absl::StrJoin(row.shape, " ")));
  return rows;
}

OptimizerConfig of_type(OptimizerType type) {
  OptimizerConfig config;
  config.type = type;
  return config;
}

TEST(OptimizerState, EachStoresItsState) {
  const auto table = table_of({{"a", {2, 3}}, {"b", {4}}});
  EXPECT_THAT(state_of(of_type(OptimizerType::kAdamW), table),
              ElementsAre("m.a@0 2 3", "m.b@6 4", "v.a@10 2 3", "v.b@16 4"));
  EXPECT_EQ(state_of(of_type(OptimizerType::kAdamPax), table),
            state_of(of_type(OptimizerType::kAdamW), table));
  EXPECT_THAT(state_of(of_type(OptimizerType::kSgd), table), ElementsAre());
  OptimizerConfig rounded;
  rounded.mu_dtype = ComputeType::kBfloat16;
  const auto odd = table_of({{"a", {2, 3}}, {"b", {3}}});
  EXPECT_THAT(state_of(rounded, odd), ElementsAre("m.a@0 2 3", "m.b@6 3", "v.a@5 2 3", "v.b@11 3"));
  const auto large = table_of({{"n", {200}}, {"w", {128, 300}}, {"u", {127, 300}}});
  EXPECT_THAT(state_of(of_type(OptimizerType::kAdafactor), large),
              ElementsAre("v.n@0 200", "v_row.w@200 128", "v_col.w@328 300", "v.u@628 127 300"));
  EXPECT_EQ(Optimizer::make(of_type(OptimizerType::kAdafactor), ShardLayout::whole(large))
                ->state_elements(),
            628 + 127 * 300);
  EXPECT_EQ(
      Optimizer::make(of_type(OptimizerType::kSgd), ShardLayout::whole(large))->state_elements(),
      0);
}

TEST(OptimizerState, BlocksOfAnotherSizeEndTheProcess) {
  Model model(of_type(OptimizerType::kAdamW), table_of({{"a", {3}}}));
  model.state.pop_back();
  EXPECT_DEATH(model.update({}), "3, 3 and 5 for 3 parameters and 6 of state");
}

// The independent references of tests/golden/make_optimizers.py.
class OptimizerGolden : public testing::TestWithParam<std::tuple<const char*, int>> {
 protected:
  static constexpr int64_t kLargeElements = 1000;
  static constexpr int64_t kStride = 7;

  static OptimizerConfig config_of(const nlohmann::json& json) {
    OptimizerConfig config;
    const std::string type = json.at("opt_type");
    if (type == "adam_pax") config.type = OptimizerType::kAdamPax;
    if (type == "sgd") config.type = OptimizerType::kSgd;
    if (type == "adafactor") config.type = OptimizerType::kAdafactor;
    config.b1 = json.value("adam_b1", 0.9);
    config.b2 = json.value("adam_b2", 0.95);
    config.eps = json.value("adam_eps", 1e-8);
    config.eps_root = json.value("adam_eps_root", 0.0);
    config.weight_decay = json.value("adam_weight_decay", 0.1);
    config.adamw_mask = json.value("adamw_mask", std::vector<std::string>());
    config.update_clip = json.value("adam_clip_threshold", 0.0);
    return config;
  }

  // values() of the script.
  static void fill(const std::vector<ParamSpec>& table, int64_t step, std::vector<float>& block) {
    for (size_t tensor = 0; tensor < table.size(); ++tensor) {
      for (int64_t i = 0; i < table[tensor].elements(); ++i) {
        const double size = step == 0 ? 1 : std::pow(10.0, static_cast<double>(i % 5 - 3));
        const double wave =
            std::sin(0.7 * static_cast<double>(i) + 1.9 * static_cast<double>(tensor) +
                     2.3 * static_cast<double>(step) + 0.31 * static_cast<double>(i % 11));
        block[static_cast<size_t>(table[tensor].offset + i)] = static_cast<float>(size * wave);
      }
    }
  }

  void expect_step(const Model& model, int64_t t) const {
    for (const ParamSpec& spec : model.table) {
      const auto expected =
          file_.tensor<float>(absl::StrCat(std::get<0>(GetParam()), "/", spec.name, "/", t));
      const int64_t stride = spec.elements() > kLargeElements ? kStride : 1;
      ASSERT_EQ(static_cast<int64_t>(expected.size()), (spec.elements() + stride - 1) / stride);
      for (size_t i = 0; i < expected.size(); ++i) {
        const auto at = static_cast<size_t>(spec.offset) + i * static_cast<size_t>(stride);
        ASSERT_NEAR(model.params[at], expected[i], 1e-5 * std::max(1.0F, std::abs(expected[i])))
            << spec.name << " element " << i * static_cast<size_t>(stride) << " after " << t;
      }
    }
  }

  GoldenFile file_{"optimizers.safetensors"};
};

TEST_P(OptimizerGolden, TenUpdates) {
  const auto [name, threads] = GetParam();
  const nlohmann::json json = file_.metadata("cases").at(name);
  std::vector<std::pair<std::string, std::vector<int64_t>>> shapes;
  for (const auto& [tensor, shape] : json.at("shapes").get<decltype(shapes)>())
    shapes.emplace_back(tensor, shape);
  Model model(config_of(json), table_of(shapes), threads);
  fill(model.table, 0, model.params);
  for (int64_t t = 1; t <= 10; ++t) {
    fill(model.table, t, model.grads);
    model.update({.learning_rate = file_.metadata("learning_rate"),
                  .grad_scale = file_.metadata("grad_scale"),
                  .t = t});
    if (t == 1 || t == 10) expect_step(model, t);
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, OptimizerGolden,
                         testing::Combine(testing::Values("adamw", "adamw_mask", "adam_pax",
                                                          "adam_pax_bounded", "sgd", "adafactor"),
                                          testing::Values(1, 3)));

TEST(AdamW, FirstUpdateMovesByTheRate) {
  OptimizerConfig config;
  config.weight_decay = 0.5;
  config.adamw_mask = {"second"};
  Model model(config, table_of({{"first", {3}}, {"second", {2}}}));
  model.params.assign(5, 1);
  model.grads = {4, -2, 1e-3F, 7, -7};
  model.update({.learning_rate = 0.01, .grad_scale = 0.125, .t = 1});
  // m̂ / sqrt(v̂) of the first update is the gradient's sign; the scale cancels.
  const double decayed = 1 - 0.01 * 0.5;
  EXPECT_NEAR(model.params[0], decayed - 0.01, 1e-6);
  EXPECT_NEAR(model.params[1], decayed + 0.01, 1e-6);
  EXPECT_NEAR(model.params[2], decayed - 0.01, 1e-6);
  EXPECT_NEAR(model.params[3], 1 - 0.01, 1e-6);
  EXPECT_NEAR(model.params[4], 1 + 0.01, 1e-6);
  EXPECT_NEAR(model.state[0], 0.1 * 4 * 0.125, 1e-7);
  EXPECT_NEAR(model.state[5], 0.05 * 0.25, 1e-7);
}

TEST(AdamW, RateZeroStillMovesMoments) {
  Model model(OptimizerConfig(), table_of({{"a", {5}}}));
  model.params.assign(5, 1);
  model.grads.assign(5, 1);
  model.update({.learning_rate = 0, .t = 1});
  EXPECT_EQ(model.params, std::vector<float>(5, 1));
  EXPECT_GT(model.state[0], 0);
}

// p -= s (peak * u + wd p), s the schedule's share of the peak: AXLearn's
// adamw_decoupled_optimizer.
TEST(AdamW, AxlearnsDecayIsNotMultipliedByTheRate) {
  OptimizerConfig config;
  config.learning_rate = 2e-3;
  config.decay_times_learning_rate = false;
  Model model(config, table_of({{"a", {1}}}));
  model.params = {3};
  model.grads = {1};
  const double share = 0.25;
  model.update({.learning_rate = 2e-3 * share, .t = 1});
  EXPECT_NEAR(model.params[0], 3 - share * (2e-3 * 1 + 0.1 * 3), 1e-6);
}

// adam_pax without a bound is AdamW but for what it stores.
TEST(AdamPax, StoresCorrectedMoments) {
  Model model(of_type(OptimizerType::kAdamPax), table_of({{"a", {1}}}));
  for (const int64_t t : {1, 2}) {
    model.grads = {4};
    model.update({.learning_rate = 0.01, .t = t});
    EXPECT_NEAR(model.state[0], 4, 1e-6);
    EXPECT_NEAR(model.state[1], 16, 1e-5);
  }
}

TEST(AdamPax, TheBoundIsOfEachTensorsRms) {
  OptimizerConfig config = of_type(OptimizerType::kAdamPax);
  config.weight_decay = 0;
  config.update_clip = 0.5;  // a first update is ±1
  Model model(config, table_of({{"a", {2}}, {"b", {2}}}));
  model.grads = {3, -3, 0, 0};
  model.update({.learning_rate = 0.01, .t = 1});
  EXPECT_NEAR(model.params[0], -0.005, 1e-8);
  EXPECT_NEAR(model.params[1], 0.005, 1e-8);
  EXPECT_EQ(model.params[2], 0);
}

// A gradient of zeros, and a state that has seen nothing: no NaN comes of it.
TEST(Optimizers, ZeroGradientsAreHarmless) {
  for (const OptimizerType type : {OptimizerType::kAdamW, OptimizerType::kAdamPax,
                                   OptimizerType::kSgd, OptimizerType::kAdafactor}) {
    OptimizerConfig config = of_type(type);
    config.update_clip = 1;
    Model model(config, table_of({{"a", {128, 130}}, {"b", {5}}}), 2);
    for (int64_t t = 1; t <= 3; ++t) {
      std::fill(model.grads.begin(), model.grads.end(), 0.0F);
      model.update({.learning_rate = 1, .t = t});
    }
    EXPECT_EQ(model.params, std::vector<float>(model.params.size())) << static_cast<int>(type);
  }
}

// The Adams with a first moment in bf16, and with a bound of the update.
std::vector<OptimizerConfig> with_rounded_moments() {
  std::vector<OptimizerConfig> configs(3);
  configs[0].adamw_mask = {"b"};  // two ranges
  configs[1].type = configs[2].type = OptimizerType::kAdamPax;
  configs[2].update_clip = 0.5;
  for (OptimizerConfig& config : configs) config.mu_dtype = ComputeType::kBfloat16;
  return configs;
}

float random(uint64_t what, size_t i) {
  return uniform_from_bits(Philox{what, 0}(static_cast<uint64_t>(i))[0]) - 0.5F;
}

std::vector<float> first_moments(const Model& model) {
  const auto* const m = reinterpret_cast<const Bf16*>(model.state.data());
  std::vector<float> numbers;
  for (size_t i = 0; i < model.params.size(); ++i) numbers.push_back(m[i].value());
  return numbers;
}

// Equal to an optimizer with fp32 moments whose m is rounded after each update.
TEST(FirstMoments, InBf16AreRoundedOnceAnUpdateIsMade) {
  const auto table = table_of({{"a", {33, 7}}, {"b", {5}}, {"c", {201}}});
  for (const OptimizerConfig& config : with_rounded_moments()) {
    OptimizerConfig exact = config;
    exact.mu_dtype = ComputeType::kFloat32;
    Model rounded(config, table, 2), reference(exact, table);
    const size_t n = rounded.params.size();
    ASSERT_EQ(n % 2, 1U);
    EXPECT_EQ(rounded.state.size(), (n + 1) / 2 + n);
    for (int64_t t = 1; t <= 4; ++t) {
      for (Model* model : {&rounded, &reference}) {
        for (size_t i = 0; i < n; ++i) model->grads[i] = random(static_cast<uint64_t>(t), i);
        model->update({.learning_rate = 0.1, .t = t});
      }
      for (size_t i = 0; i < n; ++i) reference.state[i] = Bf16::round(reference.state[i]).value();
      ASSERT_EQ(rounded.params, reference.params) << "update " << t;
      ASSERT_EQ(first_moments(rounded),
                std::vector<float>(reference.state.begin(), reference.state.begin() + n));
      ASSERT_TRUE(std::equal(rounded.state.begin() + (n + 1) / 2, rounded.state.end(),
                             reference.state.begin() + n));
    }
  }
}

// Stochastic rounding gives one of the two values around the fp32 one, and its mean.
TEST(FirstMoments, RoundedByChanceHaveTheRightMean) {
  constexpr int64_t kWidth = 40'000;
  const auto table = table_of({{"a", {kWidth}}, {"b", {kWidth}}, {"c", {kWidth + 1}}});
  for (OptimizerConfig config : with_rounded_moments()) {
    config.mu_stochastic_rounding = true;
    OptimizerConfig exact = config;
    exact.mu_dtype = ComputeType::kFloat32;
    const auto after = [&](const OptimizerConfig& with, int64_t t, uint64_t seed, int threads = 1) {
      Model model(with, table, threads);
      for (size_t i = 0; i < model.grads.size(); ++i) model.grads[i] = 1 + random(1, i);
      model.update({.learning_rate = 0.1, .t = t, .seed = seed});
      return model;
    };
    const Model whole = after(exact, 2, 5), rounded = after(config, 2, 5);
    EXPECT_EQ(rounded.params, whole.params) << "the update is made before";
    const std::vector<float> m = first_moments(rounded);
    double sum = 0, squares = 0, nearest = 0;  // in distances of neighbours
    for (size_t i = 0; i < m.size(); ++i) {
      const float distance = std::ldexp(1.0F, std::ilogb(whole.state[i]) - 7);
      const double error = (m[i] - whole.state[i]) / distance;
      ASSERT_LT(std::abs(error), 1) << i;
      sum += error;
      squares += error * error;
      nearest += Bf16::round(whole.state[i]).value() == m[i] ? 1 : 0;
    }
    const auto n = static_cast<double>(m.size());
    EXPECT_LT(std::abs(sum), 5 * std::sqrt(n / 6));  // the variance is p (1 - p), with mean 1/6
    EXPECT_NEAR(squares / n, 1.0 / 6, 0.01);
    EXPECT_NEAR(nearest / n, 3.0 / 4, 0.01);
    // Neighbours have words of their own, and so have updates and seeds; threads have not.
    EXPECT_EQ(first_moments(after(config, 2, 5, 3)), m);
    EXPECT_NE(first_moments(after(config, 2, 6)), m);
    EXPECT_NE(first_moments(after(config, 3, 5)), first_moments(after(config, 3, 6)));
  }
}

TEST(ClipFactor, BringsTheNormDown) {
  EXPECT_EQ(clip_factor(0.5, 1.0), 1);
  EXPECT_EQ(clip_factor(1.0, 1.0), 1);
  EXPECT_EQ(clip_factor(4.0, 1.0), 0.25);
  EXPECT_EQ(clip_factor(4.0, 0), 1);  // off
  EXPECT_EQ(clip_factor(0, 1.0), 1);
}

}  // namespace
}  // namespace muster::trainer
