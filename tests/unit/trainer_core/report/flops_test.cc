#include "trainer_core/report/flops.h"

#include <gtest/gtest.h>

namespace muster::trainer {
namespace {

// Pax's GLaM126M64E: 12 layers, 6 of them with 64 experts, two of which compute a token.
TrainConfig glam() {
  TrainConfig config;
  config.model = {.vocab_size = 50'304,
                  .emb_dim = 768,
                  .num_layers = 12,
                  .num_query_heads = 12,
                  .num_kv_heads = 12,
                  .head_dim = 64,
                  .mlp_dim = 3072,
                  .logits_via_embedding = true,
                  .experts = {.count = 64,
                              .per_token = 2,
                              .mlp_dim = 3072,
                              .layer_step = 2,
                              .first_layer = 0,
                              .gated = false}};
  config.per_device_batch_size = 4;
  config.max_target_length = 2048;
  return config;
}

constexpr double kTera = 1e12;

// Three passes of one multiplication and one addition per weight and token: attention 28,311,552,
// gated MLPs 42,467,328, routers and two experts without gates 56,918,016, head 38,633,472.
TEST(Flops, CountOnlyTheActiveExperts) {
  const StepTflops flops = step_tflops(glam());
  EXPECT_NEAR(flops.learnable, 6.0 * 166'330'368 * 4 * 2048 / kTera, 1e-9);
  EXPECT_NEAR(flops.attention, 12.0 * 12 * 4 * 2048 * 2048 * 12 * 64 / kTera, 1e-9);
  EXPECT_EQ(flops.attention_causal, flops.attention / 2);
}

// A gate is a third matrix of the MLP or of the experts.
TEST(Flops, CountGates) {
  TrainConfig config = glam();
  const double plain = step_tflops(config).learnable;
  const double matrix = 6.0 * 768 * 3072 * 4 * 2048 / kTera;  // for all tokens, in one layer
  config.model.gated_mlp = false;
  EXPECT_NEAR(plain - step_tflops(config).learnable, 6 * matrix, 1e-9);
  config.model.experts.gated = true;
  EXPECT_NEAR(step_tflops(config).learnable - plain, 6 * (2 * matrix) - 6 * matrix, 1e-9);
}

TEST(Flops, OfADenseModel) {
  TrainConfig dense = glam();
  dense.model.experts = {};
  // MaxText: 6 times the weights without the embeddings.
  EXPECT_NEAR(step_tflops(dense).learnable,
              6.0 * (28'311'552 + 2 * 42'467'328 + 38'633'472) * 4 * 2048 / kTera, 1e-9);
}

// Frozen weights have no gradients. Attention has four adapters in 12 layers; the MLPs of the 6
// layers without experts have three.
TEST(Flops, OfAdapters) {
  TrainConfig config = glam();
  config.model.lora = {
      .rank = 8, .alpha = 8, .dropout = 0, .targets = lora_targets(config.model, LoraLayers::kAll)};
  const double adapters = 8.0 * (12 * 4 * (768 + 768) + 6 * 3 * (768 + 3072));
  EXPECT_NEAR(step_tflops(config).learnable, (4.0 * 166'330'368 + 6 * adapters) * 4 * 2048 / kTera,
              1e-9);
  EXPECT_EQ(step_tflops(config).attention, step_tflops(glam()).attention);
}

}  // namespace
}  // namespace muster::trainer
