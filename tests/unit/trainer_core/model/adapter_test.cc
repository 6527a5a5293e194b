// Adapters of frozen weights against the same model with merged weights, whose passes have no
// adapters: W' = W + s B A. The losses are equal, and with the gradient G of W' the gradients of
// the adapters are dA = s Bᵀ G and dB = s G Aᵀ.
#include <algorithm>
#include <cmath>
#include <map>
#include <ostream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/trainer_core/model/finite_differences.h"
#include "tests/unit/trainer_core/model/transformer_fixture.h"

namespace muster::trainer {
namespace {

ModelConfig adapted(ModelConfig model, LoraLayers layers = LoraLayers::kAll, double dropout = 0) {
  model.lora = {
      .rank = 3, .alpha = 4.5, .dropout = dropout, .targets = lora_targets(model, layers)};
  return model;
}

ModelConfig with_targets(ModelConfig model, std::vector<std::string> targets) {
  model.lora = {.rank = 2, .alpha = 1, .dropout = 0, .targets = std::move(targets)};
  return model;
}

struct AdapterCase {
  const char* name;
  ModelConfig model;
  DType dtype = DType::kF32;
  int32_t batch = 2;
  int32_t seq_len = 9;
  RematPolicy remat = RematPolicy::kNone;

  friend std::ostream& operator<<(std::ostream& out, const AdapterCase& test) {
    return out << test.name;
  }
};

// A matrix (rows, columns).
struct Matrix {
  std::span<const float> values;
  size_t rows = 0, columns = 0;

  double at(size_t i, size_t j) const { return values[i * columns + j]; }
};

// The tensors of a flat block by name.
class Tensors {
 public:
  Tensors(const std::vector<ParamSpec>& table, std::span<const float> block) {
    for (const ParamSpec& spec : table) {
      tensors_[spec.name] = {
          block.subspan(static_cast<size_t>(spec.offset), static_cast<size_t>(spec.elements())),
          static_cast<size_t>(spec.shape[0]),
          static_cast<size_t>(spec.shape.size() > 1 ? spec.shape[1] : 1)};
    }
  }
  const Matrix& operator[](const std::string& name) const { return tensors_.at(name); }
  const std::map<std::string, Matrix>& all() const { return tensors_; }

 private:
  std::map<std::string, Matrix> tensors_;
};

std::string module_of(const std::string& name) {
  constexpr std::string_view kSuffix = ".lora_A.weight";
  return name.ends_with(kSuffix) ? name.substr(0, name.size() - kSuffix.size()) : "";
}

// Writes random values to the adapters and the frozen weights.
void randomize(TestModel& test) {
  fill_random(1, test.model.params(), 0.5F);
  const Tensor block = test.model.frozen_parameters();
  randomize_params(test.plan.sharding.frozen.table(),
                   {block.f32(), static_cast<size_t>(block.elements())});
}

// Returns the parameters of the model without adapters that computes the same.
std::vector<float> merged(TestModel& test) {
  const Tensor block = test.model.frozen_parameters();
  std::vector<float> values(block.f32(), block.f32() + block.elements());
  const std::vector<ParamSpec>& frozen = test.plan.sharding.frozen.table();
  const Tensors adapters(test.plan.sharding.layout.table(), test.model.params());
  const double scale = test.plan.model.lora.scale();
  for (const ParamSpec& spec : frozen) {
    const std::string module = spec.name.substr(0, spec.name.rfind(".weight"));
    if (!adapters.all().contains(module + ".lora_A.weight")) continue;
    const Matrix &a = adapters[module + ".lora_A.weight"], &b = adapters[module + ".lora_B.weight"];
    for (size_t i = 0; i < b.rows; ++i) {
      for (size_t j = 0; j < a.columns; ++j) {
        double sum = 0;
        for (size_t k = 0; k < a.rows; ++k) sum += b.at(i, k) * a.at(k, j);
        values[static_cast<size_t>(spec.offset) + i * a.columns + j] +=
            static_cast<float>(scale * sum);
      }
    }
  }
  return values;
}

void expect_close(const Matrix& actual, const std::vector<double>& expected, double tolerance,
                  const std::string& name) {
  double largest = 0, difference = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    largest = std::max(largest, std::abs(expected[i]));
    difference = std::max(difference, std::abs(actual.values[i] - expected[i]));
  }
  EXPECT_GT(largest, 0) << name;
  EXPECT_LE(difference, tolerance * largest) << name;
}

class AdapterMatches : public testing::TestWithParam<AdapterCase> {};

TEST_P(AdapterMatches, TheMergedModel) {
  const AdapterCase& test = GetParam();
  const int64_t rows = int64_t{test.batch} * test.seq_len;
  TestModel ours(test.model, test.batch, test.seq_len, test.remat, 1, true, test.dtype);
  TestModel plain(base_of(test.model), test.batch, test.seq_len, test.remat, 1, true, test.dtype);
  randomize(ours);
  std::ranges::copy(merged(ours), plain.model.params().begin());
  // Both bf16 models round differently, and so much in models as small as these.
  const double exact = test.dtype == DType::kF32 ? 1e-5 : 0.1;
  const TestBatch first(test.model.vocab_size, rows), second(test.model.vocab_size, rows, 5);
  for (const TestBatch* batch : {&first, &second}) {
    const auto accumulate = batch == &first ? Accumulate::kNo : Accumulate::kYes;
    const LossSum loss = ours.model.forward_backward(batch->view(), accumulate);
    const LossSum expected = plain.model.forward_backward(batch->view(), accumulate);
    EXPECT_NEAR(loss.loss, expected.loss, 0.1 * exact * expected.loss);
    EXPECT_NEAR(ours.model.forward(batch->view()).loss, loss.loss, 1e-6 * loss.loss);
  }
  const double scale = test.model.lora.scale();
  const std::vector<ParamSpec>& table = ours.plan.sharding.layout.table();
  const Tensors values(table, ours.model.params()), gradients(table, ours.model.grads());
  const Tensors whole(plain.plan.params, plain.model.grads());
  size_t adapters = 0;
  for (const auto& [name, a] : values.all()) {
    const std::string module = module_of(name);
    if (module.empty()) continue;
    ++adapters;
    const Matrix &b = values[module + ".lora_B.weight"], &g = whole[module + ".weight"];
    std::vector<double> d_a(a.rows * a.columns), d_b(b.rows * b.columns);
    for (size_t k = 0; k < a.rows; ++k) {
      for (size_t i = 0; i < b.rows; ++i) {
        for (size_t j = 0; j < a.columns; ++j) {
          d_a[k * a.columns + j] += scale * b.at(i, k) * g.at(i, j);
          d_b[i * a.rows + k] += scale * g.at(i, j) * a.at(k, j);
        }
      }
    }
    expect_close(gradients[name], d_a, exact, name);
    expect_close(gradients[module + ".lora_B.weight"], d_b, exact, module + ".lora_B.weight");
  }
  EXPECT_GE(adapters, test.model.lora.targets.size());
}

INSTANTIATE_TEST_SUITE_P(
    Models, AdapterMatches,
    testing::Values(
        AdapterCase{"llama", adapted(small_config(4, 2, false))},
        AdapterCase{"attention", adapted(small_config(4, 2, true), LoraLayers::kAttention)},
        AdapterCase{"mlp", adapted(small_config(4, 1, false), LoraLayers::kMlp)},
        AdapterCase{"query_and_value",
                    with_targets(small_config(4, 2, false), {"q_proj", "v_proj"})},
        AdapterCase{"key_and_up", with_targets(small_config(4, 2, false), {"k_proj", "up_proj"})},
        AdapterCase{"down", with_targets(small_config(4, 2, false), {"down_proj"})},
        AdapterCase{"gpt", adapted(small_gpt())}, AdapterCase{"gemma", adapted(small_gemma())},
        AdapterCase{"parallel", adapted(small_parallel())},
        AdapterCase{"interleaved", adapted(small_mixture_of_choices())},
        AdapterCase{"experts", adapted(dropless(small_mixtral()))},
        AdapterCase{"recomputed", adapted(small_gpt()), DType::kF32, 2, 9, RematPolicy::kFull},
        AdapterCase{"chunks", adapted(small_config(2, 1, false)), DType::kF32, 3, 400},
        AdapterCase{"bf16", adapted(small_config(4, 2, false)), DType::kBf16},
        AdapterCase{"bf16_chunks", adapted(small_gpt()), DType::kBf16, 16, 72}),
    [](const auto& test) { return test.param.name; });

// The first step of a training is that of the base: B is zero.
TEST(Adapters, BeginWithTheBase) {
  const ModelConfig config = adapted(small_config(4, 2, false));
  TestModel ours(config, 2, 9), plain(base_of(config), 2, 9);
  randomize(ours);
  init_params(ours.plan.sharding.layout.table(), 3, ours.model.params().data());
  const Tensor base = ours.model.frozen_parameters();
  std::copy_n(base.f32(), base.elements(), plain.model.params().begin());
  const TestBatch batch(config.vocab_size, 18);
  EXPECT_EQ(ours.model.forward(batch.view()).loss, plain.model.forward(batch.view()).loss);
}

// Masks depend on the sample alone, so the loss with dropout is a function of the parameters.
TEST(Adapters, GradientsWithDropout) {
  for (const ModelConfig& model : {small_config(4, 2, false), small_gpt()}) {
    const ModelConfig config = adapted(model, LoraLayers::kAll, 0.4);
    TestModel test(config, 2, 9);
    test.plan.params = test.plan.sharding.layout.table();
    randomize(test);
    const TestBatch data(config.vocab_size, 18);
    Batch batch = data.view();
    batch.dropout = {.seed = 5, .first_sample = 12};
    const double plain = test.model.forward(batch).loss;
    const double dropped = test.model.forward_backward(batch).loss;
    EXPECT_GT(std::abs(dropped - plain), 1e-4 * plain);
    EXPECT_EQ(test.model.forward(batch).loss, plain);
    TestModel other(config, 2, 9);
    expect_gradients_of(test, [&] {
      std::ranges::copy(test.model.params(), other.model.params().begin());
      const Tensor from = test.model.frozen_parameters();
      std::copy_n(from.f32(), from.elements(), other.model.frozen_parameters().f32());
      return other.model.forward_backward(batch).loss;
    });
  }
}

// The base adds nothing to the residual stream, and both layers are equal. So the adapter of either
// layer adds the same, unless their masks differ.
TEST(Adapters, DropoutMasksDifferBetweenLayers) {
  ModelConfig config = small_config(4, 2, false);
  config.lora = {.rank = 2, .alpha = 2, .dropout = 0.5, .targets = {"down_proj"}};
  ASSERT_GE(config.num_layers, 2);
  TestModel test(config, 1, 9);
  randomize(test);
  const auto tensor = [](const std::vector<ParamSpec>& table, float* block,
                         const std::string& name) {
    const auto spec = std::ranges::find(table, name, &ParamSpec::name);
    EXPECT_NE(spec, table.end()) << name;
    return std::span(block + spec->offset, static_cast<size_t>(spec->elements()));
  };
  const std::string first = "model.layers.0.", second = "model.layers.1.";
  const auto equalize = [&](const std::vector<ParamSpec>& table, float* block) {
    for (const ParamSpec& spec : table) {
      const std::span<float> values = tensor(table, block, spec.name);
      if (spec.name.ends_with("o_proj.weight") || spec.name.ends_with("down_proj.weight")) {
        std::ranges::fill(values, 0.0F);
      } else if (spec.name.starts_with(second)) {
        std::ranges::copy(tensor(table, block, first + spec.name.substr(second.size())),
                          values.begin());
      }
    }
  };
  const std::vector<ParamSpec>& adapters = test.plan.sharding.layout.table();
  float* const trained = test.model.params().data();
  equalize(test.plan.sharding.frozen.table(), test.model.frozen_parameters().f32());
  equalize(adapters, trained);
  const std::string b = "mlp.down_proj.lora_B.weight";
  const std::span<float> of_first = tensor(adapters, trained, first + b);
  const std::vector<float> values(of_first.begin(), of_first.end());
  const TestBatch data(config.vocab_size, 9);
  Batch batch = data.view();
  batch.dropout = {.seed = 5, .first_sample = 0};
  std::vector<double> plain, dropped;
  for (const std::string& active : {first, second}) {
    for (const ParamSpec& spec : adapters)
      if (spec.name.ends_with(b)) std::ranges::fill(tensor(adapters, trained, spec.name), 0.0F);
    plain.push_back(test.model.forward(batch).loss);
    std::ranges::copy(values, tensor(adapters, trained, active + b).begin());
    EXPECT_NE(test.model.forward(batch).loss, plain.back());
    plain.back() = test.model.forward(batch).loss;
    dropped.push_back(test.model.forward_backward(batch).loss);
  }
  EXPECT_EQ(plain[0], plain[1]);
  EXPECT_NE(dropped[0], dropped[1]);
}

TEST(Adapters, DropoutMasksDifferBetweenSamples) {
  const ModelConfig config = adapted(small_config(4, 2, false), LoraLayers::kAll, 0.5);
  TestModel test(config, 1, 9);
  randomize(test);
  const TestBatch data(config.vocab_size, 9);
  Batch batch = data.view();
  std::vector<double> losses;
  for (const uint64_t sample : {0, 1, 2}) {
    batch.dropout = {.seed = 5, .first_sample = sample};
    losses.push_back(test.model.forward_backward(batch).loss);
  }
  EXPECT_NE(losses[0], losses[1]);
  EXPECT_NE(losses[1], losses[2]);
  batch.dropout.first_sample = 0;
  EXPECT_EQ(test.model.forward_backward(batch).loss, losses[0]);
}

}  // namespace
}  // namespace muster::trainer
