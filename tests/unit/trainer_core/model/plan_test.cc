#include <cmath>
#include <cstdint>
#include <random>
#include <set>

#include <gtest/gtest.h>

#include "tests/unit/trainer_core/model/transformer_fixture.h"

namespace muster::trainer {
namespace {

ModelConfig llama2(int32_t emb, int32_t layers, int32_t heads, int32_t kv_heads, int32_t mlp) {
  ModelConfig config;
  config.vocab_size = 32'000;
  config.emb_dim = emb;
  config.num_layers = layers;
  config.num_query_heads = heads;
  config.num_kv_heads = kv_heads;
  config.head_dim = 128;
  config.mlp_dim = mlp;
  return config;
}

TEST(ParamSpec, CountsOfPublishedModels) {
  EXPECT_EQ(parameter_count(model_params(llama2(4096, 32, 32, 32, 11'008))), 6'738'415'616);
  EXPECT_EQ(parameter_count(model_params(llama2(5120, 40, 40, 40, 13'824))), 13'015'864'320);
  EXPECT_EQ(parameter_count(model_params(llama2(8192, 80, 64, 8, 28'672))), 68'976'648'192);
}

TEST(ParamSpec, RowsArePackedInOrder) {
  for (const bool tied : {false, true}) {
    const std::vector<ParamSpec> table = model_params(small_config(4, 2, tied));
    int64_t offset = 0;
    std::set<std::string> names;
    for (const ParamSpec& spec : table) {
      EXPECT_EQ(spec.offset, offset) << spec.name;
      if (spec.split.units > 0) {
        EXPECT_EQ(spec.shape.at(spec.split.dim) % spec.split.units, 0);
      }
      offset += spec.elements();
      names.insert(spec.name);
    }
    EXPECT_EQ(names.size(), table.size());
    EXPECT_EQ(offset, parameter_count(table));
    EXPECT_EQ(table.size(), 2U + 2 * 9 + (tied ? 0 : 1));
    EXPECT_EQ(names.contains("lm_head.weight"), !tied);
    EXPECT_TRUE(names.contains("model.layers.1.mlp.down_proj.weight"));
  }
}

TEST(ParamSpec, InitDependsOnlyOnSeedAndName) {
  ModelConfig config = small_config(4, 2, false);
  config.emb_dim = 256;
  const std::vector<ParamSpec> two = model_params(config);
  config.num_layers = 3;
  const std::vector<ParamSpec> three = model_params(config);
  std::vector<float> a(static_cast<size_t>(parameter_count(two))),
      b(static_cast<size_t>(parameter_count(three)));
  init_params(two, 5, a.data());
  init_params(three, 5, b.data());
  const auto value = [](const std::vector<ParamSpec>& table, const std::vector<float>& block,
                        size_t row) { return block[static_cast<size_t>(table[row].offset) + 3]; };
  EXPECT_EQ(value(two, a, two.size() - 1), value(three, b, three.size() - 1));  // lm_head
  EXPECT_NE(value(two, a, 2), value(two, a, 2 + 9));  // q_proj of two layers
  EXPECT_EQ(value(two, a, two.size() - 2), 1.0F);     // the final norm
  init_params(two, 6, b.data());
  EXPECT_NE(a[0], b[0]);

  const ParamSpec& embedding = two.front();
  double square = 0;
  for (int64_t i = 0; i < embedding.elements(); ++i)
    square += std::pow(a[static_cast<size_t>(i)], 2);
  EXPECT_NEAR(std::sqrt(square / static_cast<double>(embedding.elements())), 1 / std::sqrt(256.0),
              2e-3);
}

// praxis, attentions.py: the deviation of queries is larger by sqrt(head_dim) if scores are not
// scaled.
TEST(ParamSpec, InitialDeviationsOfGlam) {
  ModelConfig config = small_dense_glam();
  config.embedding_init_std = 1;
  config.init_std = 0;
  for (const ParamSpec& spec : model_params(config)) {
    const auto ends = [&](const char* name) { return spec.name.ends_with(name); };
    if (spec.init != InitKind::kNormal) continue;
    const double fan_in = static_cast<double>(spec.shape[1]);
    const double expected = ends("embed_tokens.weight") ? 1
                            : ends("q_proj.weight")     ? 1 / std::sqrt(fan_in * config.head_dim)
                            : ends("attention_bias.weight")
                                ? 1 / std::sqrt(config.num_query_heads * fan_in)
                                : 1 / std::sqrt(fan_in);
    EXPECT_NEAR(spec.init_std, expected, 1e-15) << spec.name;
  }
}

TEST(TransformerPlan, BlocksHoldTheParameters) {
  const TransformerPlan plan = build_transformer_plan(
      small_config(4, 2, true), 2, 9, DType::kF32, layer_placements(RematPolicy::kFull), true, 1);
  const auto n = static_cast<size_t>(parameter_count(plan.params));
  EXPECT_EQ(plan.memory.category_bytes(MemoryCategory::kParameters), 4 * n);
  EXPECT_EQ(plan.memory.category_bytes(MemoryCategory::kGradients), 4 * n);
  EXPECT_EQ(plan.memory.category_bytes(MemoryCategory::kOptimizer), 0U);  // in training_plan.h
}

// Planning allocates nothing: the largest model's plan is arithmetic.
TEST(TransformerPlan, SeventyBillionParameters) {
  const TransformerPlan plan =
      build_transformer_plan(llama2(8192, 80, 64, 8, 28'672), 1, 4096, DType::kF32,
                             layer_placements(RematPolicy::kFull), true, 64);
  EXPECT_GT(plan.memory.total_bytes(), 8ULL * 68'976'648'192);
}

// Random sizes, each up to its own maximum.
TrainConfig random_sizes(std::mt19937_64& generator) {
  const auto size = [&](int bits) {
    return int32_t{1} << generator() % static_cast<uint64_t>(bits + 1);
  };
  TrainConfig config;
  config.model.vocab_size = 2 * size(23);
  config.model.emb_dim = size(24);
  config.model.num_layers = size(12);
  config.model.num_query_heads = size(24);
  config.model.num_kv_heads = std::min(size(24), config.model.num_query_heads);
  config.model.head_dim = 2 * size(23);
  config.model.mlp_dim = size(24);
  config.model.logits_via_embedding = generator() % 2 == 0;
  config.per_device_batch_size = size(24);
  config.max_target_length = size(24);
  config.steps = config.optimizer.schedule_steps = 1;
  config.remat_policy = static_cast<RematPolicy>(generator() % kRematPolicyNames.size());
  config.enable_checkpointing = false;
  return config;
}

// Under the undefined-behaviour sanitizer an overflowing sum ends the test.
TEST(TransformerPlan, OfEveryValidConfigIsCountedIn64Bits) {
  std::mt19937_64 generator(20240711);
  int valid = 0;
  for (int i = 0; i < 500; ++i) {
    const TrainConfig config = random_sizes(generator);
    if (!validate(config).ok()) continue;
    ++valid;
    const TransformerPlan plan = build_transformer_plan(
        config.model, config.per_device_batch_size, config.max_target_length,
        config.activation_type(), config.layer_placements(), true, kThreadsMax);
    double bytes = 0;
    for (const PlannedBuffer& buffer : plan.memory.buffers()) {
      ASSERT_LE(buffer.offset + buffer.bytes, plan.memory.total_bytes()) << buffer.name;
      bytes += static_cast<double>(buffer.bytes);
    }
    // Sums in doubles, which do not overflow; buffers that share memory count twice.
    ASSERT_LE(static_cast<double>(plan.memory.total_bytes()), bytes * (1 + 1e-9) + 1e6);
    ASSERT_LE(bytes, std::ldexp(1.0, 63));
  }
  EXPECT_GT(valid, 20);
}

}  // namespace
}  // namespace muster::trainer
