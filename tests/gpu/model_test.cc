// Whole models on both backends: losses and gradients, training, and results that must be identical
// bit by bit.
#include <string_view>

#include "tests/gpu/both_backends.h"
#include "tests/unit/trainer_core/model/transformer_fixture.h"

namespace muster::trainer {
namespace {

// A model in GPU memory, entirely within its plan.
struct GpuModel {
  GpuModel(const ModelConfig& config, int32_t batch, int32_t seq_len,
           RematPolicy remat = RematPolicy::kNone, DType dtype = DType::kF32)
      : plan(build_transformer_plan(config, batch, seq_len, dtype, layer_placements(remat),
                                    /*training=*/true,
                                    /*threads=*/1)),
        arena(plan.memory, backends().device.memory()),
        model(plan, arena, *backends().gpu) {}

  static Tensor flat(std::span<float> numbers) {
    return Tensor::f32(numbers.data(), {static_cast<int64_t>(numbers.size())});
  }
  void load(std::span<const float> params) {
    backends().gpu->upload(params.data(), flat(model.params()));
  }
  void load_frozen(const Tensor& frozen) {
    backends().gpu->upload(frozen.f32(), model.frozen_parameters());
  }
  std::vector<float> gradients() { return downloaded(model.grads()); }
  std::vector<float> parameters() { return downloaded(model.params()); }

  TransformerPlan plan;
  Arena arena;
  Transformer model;

 private:
  static std::vector<float> downloaded(std::span<float> numbers) {
    std::vector<float> result(numbers.size());
    backends().gpu->download(flat(numbers), result.data());
    return result;
  }
};

double largest(std::span<const float> numbers) {
  double result = 1e-12;
  for (const float number : numbers)
    result = std::max(result, std::abs(static_cast<double>(number)));
  return result;
}

// Returns the largest difference divided by the largest magnitude in `expected`, or by `terms`,
// the magnitude of the terms that are summed, if that is larger.
double normalised_error(std::span<const float> expected, std::span<const float> actual,
                        double terms = 0) {
  double difference = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double apart =
        std::abs(static_cast<double>(expected[i]) - static_cast<double>(actual[i]));
    difference = std::isfinite(apart) ? std::max(difference, apart) : INFINITY;
  }
  return difference / std::max(largest(expected), terms);
}

// Returns whether a bias of keys has no effect. Without rotary positions it adds the same value to
// all scores of a query, which the softmax cancels. The backends' gradients of it are then rounding
// errors of terms as large as those of the queries' bias.
bool ignores_bias_of_keys(const ModelConfig& config) {
  return !config.has_rope() && !config.attention_extra_zero && config.attn_logits_soft_cap == 0;
}

struct ModelCase {
  const char* name;
  ModelConfig (*config)();
  friend std::ostream& operator<<(std::ostream& out, const ModelCase& c) { return out << c.name; }
};
ModelConfig small_llama() { return small_config(4, 2, false); }

ModelConfig with_adapters(ModelConfig config) {
  config.lora = {
      .rank = 3, .alpha = 6, .dropout = 0.2, .targets = lora_targets(config, LoraLayers::kAll)};
  return config;
}
ModelConfig adapted_llama() { return with_adapters(small_llama()); }
ModelConfig adapted_gpt() { return with_adapters(small_gpt()); }
ModelConfig adapted_mixtral() { return with_adapters(small_mixtral()); }

class Models : public testing::TestWithParam<std::tuple<ModelCase, DType>> {};
INSTANTIATE_TEST_SUITE_P(
    All, Models,
    testing::Combine(testing::Values(ModelCase{"llama", small_llama}, ModelCase{"gpt", small_gpt},
                                     ModelCase{"gemma", small_gemma},
                                     ModelCase{"choices", small_mixture_of_choices},
                                     ModelCase{"parallel", small_parallel},
                                     ModelCase{"relative", small_dense_glam},
                                     ModelCase{"mixtral", small_mixtral},
                                     ModelCase{"glam", small_glam},
                                     ModelCase{"adapted_llama", adapted_llama},
                                     ModelCase{"adapted_gpt", adapted_gpt},
                                     ModelCase{"adapted_mixtral", adapted_mixtral}),
                     testing::Values(DType::kF32, DType::kBf16)));

// Compares each parameter's gradient separately, so that a small one does not hide behind large
// ones.
TEST_P(Models, LossAndGradients) {
  constexpr int32_t kBatch = 2, kSeqLen = 11;
  const auto& [model, dtype] = GetParam();
  const ModelConfig config = model.config();
  TestModel cpu(config, kBatch, kSeqLen, RematPolicy::kNone, 2, true, dtype);
  // The gradient of an adapter is that of its projection through a matrix of low rank: fewer sums
  // average the rounding of bf16.
  const double half_band = config.lora.enabled() ? 0.3 : 0.1;
  GpuModel gpu(config, kBatch, kSeqLen, RematPolicy::kNone, dtype);
  const ShardLayout &trained = cpu.plan.sharding.layout, &frozen = cpu.plan.sharding.frozen;
  randomize_params(trained.table(), cpu.model.params());
  if (frozen.elements() > 0) {
    fill_random(3, cpu.model.params(), 0.5F);
    const Tensor block = cpu.model.frozen_parameters();
    randomize_params(frozen.table(), {block.f32(), static_cast<size_t>(block.elements())});
    gpu.load_frozen(block);
  }
  gpu.load(cpu.model.params());
  for (const Accumulate accumulate : {Accumulate::kNo, Accumulate::kYes}) {
    const TestBatch batch(config.vocab_size, kBatch * kSeqLen,
                          accumulate == Accumulate::kNo ? 1 : 2);
    Batch samples = batch.view();
    samples.dropout = {.seed = 4, .first_sample = 8};
    const LossSum expected = cpu.model.forward_backward(samples, accumulate);
    const LossSum actual = gpu.model.forward_backward(samples, accumulate);
    const bool half = dtype == DType::kBf16;
    EXPECT_NEAR(actual.loss, expected.loss, (half ? 2e-2 : 1e-5) * std::abs(expected.loss));
    EXPECT_EQ(actual.weight, expected.weight);
    // In bf16 a token may choose another expert, whose probability differs in the last bit.
    if (half && config.experts.count > 1) return;
    EXPECT_EQ(actual.dropped, expected.dropped);
    const std::vector<float> gradients = gpu.gradients();
    // The bias of a layer's queries, which comes before that of its keys.
    double largest_of_queries = 0;
    for (const ParamSpec& spec : trained.table()) {
      const auto first = static_cast<size_t>(spec.offset);
      const auto count = static_cast<size_t>(spec.elements());
      const auto grads = cpu.model.grads().subspan(first, count);
      const bool is_nothing = ignores_bias_of_keys(config) && spec.name.ends_with("k_proj.bias");
      const double terms = is_nothing ? largest_of_queries : 0;
      EXPECT_LE(normalised_error(grads, std::span(gradients).subspan(first, count), terms),
                half ? half_band : 1e-4)
          << spec.name;
      if (is_nothing) {
        EXPECT_LE(largest(grads), (half ? 0.1 : 1e-4) * terms) << spec.name;
      }
      if (spec.name.ends_with("q_proj.bias")) largest_of_queries = largest(grads);
    }
  }
}

TEST(Model, KeyBiasHasNoEffectOnTheSoftmax) {
  constexpr int32_t kBatch = 2, kSeqLen = 11;
  const ModelConfig config = small_gpt();
  ASSERT_TRUE(ignores_bias_of_keys(config));
  TestModel cpu(config, kBatch, kSeqLen);
  const auto params = cpu.model.params();
  randomize_params(cpu.plan, params);
  const TestBatch batch(config.vocab_size, kBatch * kSeqLen);
  const auto loss_without = [&](std::string_view bias) {
    const std::vector<float> before(params.begin(), params.end());
    for (const ParamSpec& spec : cpu.plan.params) {
      if (!spec.name.ends_with(bias)) continue;
      std::ranges::fill(
          params.subspan(static_cast<size_t>(spec.offset), static_cast<size_t>(spec.elements())),
          0.0F);
    }
    const double loss = cpu.model.forward_backward(batch.view()).loss;
    std::ranges::copy(before, params.begin());
    return loss;
  };
  const double loss = cpu.model.forward_backward(batch.view()).loss;
  EXPECT_NEAR(loss_without("k_proj.bias"), loss, 1e-6 * loss);
  EXPECT_GT(std::abs(loss_without("q_proj.bias") - loss), 1e-4 * loss);
}

// Remat policies retain different tensors and recompute the others; the results are the same.
TEST(Model, RematChangesNoBit) {
  constexpr int32_t kBatch = 2, kSeqLen = 13;
  const ModelConfig config = small_llama();
  const TestBatch batch(config.vocab_size, kBatch * kSeqLen);
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    std::vector<float> expected;
    for (const RematPolicy remat :
         {RematPolicy::kNone, RematPolicy::kNone, RematPolicy::kFull, RematPolicy::kMinimal}) {
      GpuModel gpu(config, kBatch, kSeqLen, remat, dtype);
      std::vector<float> params(gpu.model.params().size());
      randomize_params(gpu.plan, params);
      gpu.load(params);
      gpu.model.forward_backward(batch.view());
      const std::vector<float> gradients = gpu.gradients();
      if (expected.empty()) expected = gradients;
      EXPECT_EQ(gradients, expected) << "remat policy " << static_cast<int>(remat);
    }
  }
}

// Bytes of a text, to be predicted one after another.
constexpr std::string_view kText =
    "In the beginning God created the heaven and the earth. And the earth was without form, and "
    "void; and darkness was upon the face of "
    "the deep. And the Spirit of God moved upon the face of the waters. And God said, Let there be "
    "light: and there was light. And God saw "
    "the light, that it was good: and God divided the light from the darkness. And God called the "
    "light Day, and the darkness he called "
    "Night. And the evening and the morning were the first day. And God said, Let there be a "
    "firmament in the midst of the waters, and let "
    "it divide the waters from the waters. And God made the firmament, and divided the waters "
    "which were under the firmament from the "
    "waters which were above the firmament: and it was so. And God called the firmament Heaven. "
    "And the evening and the morning were the "
    "second day.";

struct TextBatch {
  TextBatch(int64_t step, int32_t batch, int32_t seq_len) {
    for (int64_t b = 0; b < batch; ++b) {
      const size_t first = static_cast<size_t>(step * 37 + b * 101) %
                           (kText.size() - static_cast<size_t>(seq_len) - 1);
      for (size_t i = 0; i < static_cast<size_t>(seq_len); ++i) {
        tokens.push_back(static_cast<unsigned char>(kText[first + i]));
        targets.push_back(static_cast<unsigned char>(kText[first + i + 1]));
      }
    }
    weights.assign(tokens.size(), 1.0F);
  }
  Batch view() const { return {tokens, targets, weights}; }

  std::vector<int32_t> tokens, targets;
  std::vector<float> weights;
};

// Adam's state for a model on one side.
template <class Allocate>
void adam(Ops& ops, int64_t step, double weight, std::span<float> grads, std::span<float> params,
          const Allocate& moments) {
  const double t = static_cast<double>(step + 1);
  ops.adam({.learning_rate = 3e-3,
            .b1 = 0.9,
            .b2 = 0.95,
            .eps = 1e-8,
            .weight_decay = 0.1,
            .grad_scale = 1 / weight,
            .bias_correction1 = 1 - std::pow(0.9, t),
            .bias_correction2 = 1 - std::pow(0.95, t)},
           GpuModel::flat(grads), GpuModel::flat(params), moments(0), moments(1));
}

TEST(Model, TrainsAsOnTheCpu) {
  const bool large = large_shapes();
  const int64_t steps = large ? 200 : 6;
  const int32_t batch = large ? 8 : 2, seq_len = large ? 128 : 24;
  ModelConfig config = small_config(4, 2, false);
  config.vocab_size = 128;
  config.emb_dim = large ? 128 : 32;
  config.head_dim = large ? 32 : 8;
  config.mlp_dim = large ? 384 : 48;
  TestModel cpu(config, batch, seq_len, RematPolicy::kNone, 2);
  GpuModel gpu(config, batch, seq_len);
  init_params(cpu.plan.params, 3, cpu.model.params().data());
  gpu.load(cpu.model.params());
  const auto count = static_cast<int64_t>(cpu.model.params().size());
  Both m = Both::filled(DType::kF32, {count}, 0), v = Both::filled(DType::kF32, {count}, 0);
  const auto moments = [&](Side side) {
    return [&m, &v, side](int which) { return which == 0 ? m.on(side) : v.on(side); };
  };
  double first = 0, last = 0;
  for (int64_t step = 0; step < steps; ++step) {
    const TextBatch text(step, batch, seq_len);
    const LossSum expected = cpu.model.forward_backward(text.view());
    const LossSum actual = gpu.model.forward_backward(text.view());
    adam(*cpu.ops, step, expected.weight, cpu.model.grads(), cpu.model.params(),
         moments(Side::kCpu));
    adam(*backends().gpu, step, actual.weight, gpu.model.grads(), gpu.model.params(),
         moments(Side::kGpu));
    last = actual.loss / actual.weight;
    if (step == 0) first = last;
    // Rounding errors grow from step to step; a wrong gradient shows in the first few.
    ASSERT_NEAR(last, expected.loss / expected.weight, step < 20 ? 1e-4 : 3e-2) << "step " << step;
  }
  EXPECT_LT(last, first);
}

}  // namespace
}  // namespace muster::trainer
