#include "trainer_core/report/step_log.h"

#include <gmock/gmock.h>

#include <cmath>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace muster::trainer {
namespace {

using ::testing::HasSubstr;

StepRecord record() {
  StepRecord record;
  record.step = 49;
  record.seconds = 7.908;
  record.tflops_per_device = 460.48 * 7.908;
  record.tflops_causal_per_device = 400 * 7.908;
  record.tokens_per_device = 1035.97 * 7.908;
  record.total_weights = 524288;
  record.loss = 0.0002;
  return record;
}

TEST(StepLog, TheStepLineMatchesMaxTextExactly) {
  EXPECT_EQ(step_line(record()),
            "completed step: 49, seconds: 7.908, TFLOP/s/device: 460.480, Tokens/s/device: "
            "1035.970, total_weights: 524288, loss: 0.000");
}

TEST(StepLog, TheSummaryOfAnEvaluation) {
  EXPECT_EQ(eval_summary_line({.step = 9, .loss = 2.0, .total_weights = 75'264}, 7),
            "summary: loss 2.0000, perplexity 7.389 of 75,264 tokens in 7 batches");
  EXPECT_EQ(eval_summary_line({.step = -1, .loss = 0.5, .total_weights = 1}, 1),
            "summary: loss 0.5000, perplexity 1.649 of 1 tokens in 1 batch");
}

TEST(StepLog, LargeWeightsHaveNoExponent) {
  StepRecord large = record();
  large.total_weights = 16'777'216'000;
  EXPECT_NE(step_line(large).find("total_weights: 16777216000,"), std::string::npos);
  large.total_weights = 0.375;
  EXPECT_NE(step_line(large).find("total_weights: 0.375,"), std::string::npos);
}

TEST(StepLog, ParametersAndPerStepBlock) {
  EXPECT_EQ(parameters_line(6'738'415'616), "number parameters: 6.738 billion");
  EXPECT_EQ(trained_line(7, 7), "");
  EXPECT_EQ(trained_line(79'953'920, 6'818'369'536),
            "trained: adapters of 79,953,920 parameters (1.17%); all others are frozen\n");
  MemoryPlan plan;
  plan.add("params", MemoryCategory::kParameters, 3 << 20);
  plan.add("m", MemoryCategory::kOptimizer, 1 << 19);
  EXPECT_EQ(memory_line(plan), "memory: 3.5 MiB (parameters 3.0, optimizer 0.5)");
  const StepTflops tflops{.learnable = 75, .attention = 25, .attention_causal = 12.5};
  EXPECT_EQ(per_step_block(tflops),
            "Per train step:\n Total TFLOPs: 100.00 \n split as 75.00% learnable weight flops and "
            "25.00% attention flops");
}

TEST(StepLog, MetricsHaveMaxTextsNames) {
  const auto line = nlohmann::json::parse(metrics_line(record(), "run"));
  EXPECT_EQ(line.at("step"), 49);
  EXPECT_EQ(line.at("run_name"), "run");
  EXPECT_NEAR(line.at("perf/per_device_tflops_per_sec").get<double>(), 460.48, 1e-9);
  EXPECT_NEAR(line.at("perf/per_device_tflops_causal_per_sec").get<double>(), 400, 1e-9);
  for (const char* key :
       {"learning/loss", "learning/perplexity", "learning/grad_norm", "learning/raw_grad_norm",
        "learning/param_norm", "learning/current_learning_rate", "learning/total_weights",
        "perf/step_time_seconds", "perf/per_device_tflops", "perf/per_device_tokens",
        "perf/per_device_tokens_per_sec"}) {
    EXPECT_TRUE(line.contains(key)) << key;
  }
}

TEST(StepLog, SmallFiguresAreNotZero) {
  StepRecord one = record();
  one.seconds = 0.00042;
  one.tflops_per_device = 1e-8;
  EXPECT_THAT(step_line(one), HasSubstr("seconds: 0.00042, TFLOP/s/device: 0.000024, "));
  EXPECT_THAT(per_step_block({.learnable = 3e-6, .attention = 1e-6}),
              HasSubstr(" Total TFLOPs: 0.0000040 \n"));
}

TEST(DataWait, OneStepIsSingular) {
  DataWait wait;
  StepRecord one = record();
  wait.add(one);
  EXPECT_THAT(wait.line(), HasSubstr(" seconds in 1 step ("));
  wait.add(one);
  EXPECT_THAT(wait.line(), HasSubstr(" seconds in 1 step ("));
  wait.add(one);
  EXPECT_THAT(wait.line(), HasSubstr(" seconds in 2 steps ("));
}

// GFLOP per token of the published models, computed by hand from MaxText's formula.
TEST(Flops, AgreeWithMaxTextForLlama2) {
  TrainConfig config;
  config.per_device_batch_size = 3;
  config.max_target_length = 4096;
  config.model = {.name = "llama2-7b",
                  .vocab_size = 32000,
                  .emb_dim = 4096,
                  .num_layers = 32,
                  .num_query_heads = 32,
                  .num_kv_heads = 32,
                  .head_dim = 128,
                  .mlp_dim = 11008};
  const auto giga_per_token = [&](double tflops) { return tflops * 1000 / (3 * 4096); };
  EXPECT_NEAR(giga_per_token(step_tflops(config).total_causal()), 42.86, 0.005);
  EXPECT_NEAR(giga_per_token(step_tflops(config).total()), 46.08, 0.005);
  config.model = {.name = "llama2-70b",
                  .vocab_size = 32000,
                  .emb_dim = 8192,
                  .num_layers = 80,
                  .num_query_heads = 64,
                  .num_kv_heads = 8,
                  .head_dim = 128,
                  .mlp_dim = 28672};
  EXPECT_NEAR(giga_per_token(step_tflops(config).total_causal()), 428.4, 0.05);
  EXPECT_NEAR(giga_per_token(step_tflops(config).total()), 444.5, 0.05);
}

// MaxText counts the router and the experts per token; layers without experts count their MLP.
TEST(StepTflops, OfExperts) {
  TrainConfig config;
  config.per_device_batch_size = 1;
  config.max_target_length = 10;
  config.model.vocab_size = 5;
  config.model.emb_dim = 4;
  config.model.num_layers = 2;
  config.model.num_query_heads = config.model.num_kv_heads = config.model.head_dim = 2;
  config.model.mlp_dim = 7;
  const double dense = step_tflops(config).learnable;
  config.model.experts = {
      .count = 6, .per_token = 2, .mlp_dim = 3, .layer_step = 2, .gated = false};
  // Per token and input column, forward: three GEMMs of the MLP; the router, and two GEMMs of each
  // of two experts.
  const double mlp = 3 * 7, experts = 6 + 2 * 2 * 3;
  EXPECT_NEAR(step_tflops(config).learnable - dense, 3e-12 * 2 * 10 * 4 * (experts - mlp), 1e-20);
}

// MaxText counts len(mlp_activations) + 1 GEMMs: three with a gate, two without.
TEST(Flops, AnMlpWithoutAGateHasTwoGemms) {
  TrainConfig config;
  config.per_device_batch_size = 4;
  config.max_target_length = 2048;
  config.model = {.name = "GPT126M",
                  .vocab_size = 50304,
                  .emb_dim = 768,
                  .num_layers = 12,
                  .num_query_heads = 12,
                  .num_kv_heads = 12,
                  .head_dim = 64,
                  .mlp_dim = 3072,
                  .gated_mlp = false};
  const auto giga_per_token = [&](double tflops) { return tflops * 1000 / (4 * 2048); };
  EXPECT_NEAR(giga_per_token(step_tflops(config).total_causal()), 0.855, 0.0005);
  // 6 x (12 x (4 x 768² + 2 x 768 x 3072) + 768 x 50304)
  EXPECT_NEAR(giga_per_token(step_tflops(config).learnable), 0.741408768, 1e-9);
  const double without = step_tflops(config).learnable;
  config.model.gated_mlp = true;
  EXPECT_NEAR(giga_per_token(step_tflops(config).learnable - without), 6e-9 * 12 * 768 * 3072,
              1e-9);
}

}  // namespace
}  // namespace muster::trainer
