#include "trainer_core/base/train_config.h"

#include <gmock/gmock.h>

#include <functional>
#include <limits>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace muster::trainer {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;
using testing::Not;

TrainConfig valid_config() {
  TrainConfig config;
  config.run_name = "test";
  config.model = {.name = "llama2-tiny",
                  .vocab_size = 512,
                  .emb_dim = 64,
                  .num_layers = 2,
                  .num_query_heads = 4,
                  .num_kv_heads = 2,
                  .head_dim = 16,
                  .mlp_dim = 172};
  config.optimizer.schedule_steps = 100;
  config.dtype = ComputeType::kBfloat16;
  config.mesh.ici[static_cast<size_t>(MeshAxis::kData)] = 4;
  config.steps = 100;
  config.max_target_length = 128;
  config.init_weights_seed = std::numeric_limits<uint64_t>::max();
  config.dataset_type = DatasetType::kShards;
  config.dataset_path = "/data/shards";
  config.checkpoint_directory = "/data/checkpoints";
  return config;
}

TEST(TrainConfig, SurvivesJson) {
  const TrainConfig config = valid_config();
  ASSERT_TRUE(validate(config).ok()) << validate(config);
  const auto back = train_config_from_json(Json::parse(to_json(config).dump()));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(*back, config);
}

TEST(TrainConfig, KeysAreMaxTexts) {
  const Json json = to_json(valid_config());
  EXPECT_EQ(json.at("base_emb_dim"), 64);
  EXPECT_EQ(json.at("dtype"), "bfloat16");
  EXPECT_EQ(json.at("remat_policy"), "full");
  EXPECT_EQ(json.at("dataset_type"), "shards");
  EXPECT_EQ(json.at("ici_data_parallelism"), 4);
  EXPECT_EQ(json.at("gradient_clipping_threshold"), 1.0);
}

// Returns the reader's error for a change to valid JSON.
std::string error_of(const std::function<void(Json&)>& change) {
  Json json = to_json(valid_config());
  change(json);
  const auto config = train_config_from_json(json);
  return config.ok() ? "no error" : std::string(config.status().message());
}

TEST(TrainConfig, EveryKeyIsRequiredAndTyped) {
  const Json json = to_json(valid_config());
  for (const auto& item : json.items()) {
    const std::string& key = item.key();
    EXPECT_EQ(error_of([&](Json& j) { j.erase(key); }), "train config: " + key + " is missing");
    EXPECT_THAT(error_of([&](Json& j) { j[key] = Json::array({1}); }),
                HasSubstr("train config: " + key + " is [1], but must be "));
  }
}

// The keys are absent from configs of older checkpoints, and from those with the defaults.
TEST(TrainConfig, PrecisionKeysAreOptional) {
  const Json plain = to_json(valid_config());
  EXPECT_FALSE(plain.contains("weight_dtype") || plain.contains("matmul_precision"));
  TrainConfig config = valid_config();
  config.weight_dtype = ComputeType::kBfloat16;
  config.matmul_precision = MatmulPrecision::kHighest;
  const Json json = to_json(config);
  EXPECT_EQ(json.at("weight_dtype"), "bfloat16");
  EXPECT_EQ(json.at("matmul_precision"), "highest");
  EXPECT_EQ(*train_config_from_json(json), config);
  EXPECT_THAT(error_of([](Json& j) { j["weight_dtype"] = "float16"; }),
              HasSubstr(R"(weight_dtype is "float16", but must be "float32" or "bfloat16")"));
}

TEST(TrainConfig, WrongValues) {
  const auto error_with = [](const std::string& key, const Json& value) {
    return error_of([&](Json& j) { j[key] = value; });
  };
  EXPECT_THAT(error_with("learning_rat", 1), HasSubstr("unknown key learning_rat"));
  EXPECT_THAT(error_with("steps", 1.5),
              HasSubstr("steps is 1.5, but must be an integer of 64 bits"));
  EXPECT_THAT(error_with("vocab_size", 3'000'000'000), HasSubstr("vocab_size is 3000000000"));
  EXPECT_THAT(error_with("init_weights_seed", -1), HasSubstr("init_weights_seed is -1"));
  EXPECT_THAT(error_with("steps", 18'446'744'073'709'551'615ULL),
              HasSubstr("steps is 18446744073709551615"));
  EXPECT_THAT(error_with("remat_policy", "maximal"),
              HasSubstr(R"(remat_policy is "maximal", but must be "none" or "full" or "minimal")"));
  EXPECT_THAT(error_with("context", "remat"), HasSubstr("unknown key context"));
  EXPECT_THAT(error_with("run_name", std::string("\xff")), HasSubstr("no error"));
  EXPECT_THAT(error_of([](Json& j) { j = 3; }), HasSubstr("not a JSON object"));
}

TEST(TrainConfig, CustomRematHasItsPlacements) {
  TrainConfig config = valid_config();
  config.remat_policy = RematPolicy::kCustom;
  config.custom_remat.context = Placement::kOffload;
  config.custom_remat.mlpwi = Placement::kDevice;
  Json json = to_json(config);
  EXPECT_EQ(json.at("context"), "offload");
  EXPECT_EQ(json.at("decoder_layer_input"), "device");
  EXPECT_EQ(*train_config_from_json(json), config);
  json["context"] = "host";
  EXPECT_THAT(std::string(train_config_from_json(json).status().message()),
              HasSubstr(R"(context is "host", but must be "remat" or "device" or "offload")"));
  json["context"] = "remat";
  json["mlpwi_1"] = "offload";
  EXPECT_THAT(std::string(train_config_from_json(json).status().message()),
              HasSubstr("mlpwi=device and mlpwi_1=offload"));
  json.erase("qkv_proj");
  EXPECT_THAT(std::string(train_config_from_json(json).status().message()),
              HasSubstr("qkv_proj is missing"));
}

TEST(TrainConfig, EachQuantizationHasItsOwnKeys) {
  TrainConfig config = valid_config();
  EXPECT_EQ(to_json(config).at("quantization"), "");
  EXPECT_FALSE(to_json(config).contains("fp8_amax_history_length"));
  config.model.quantization = {.type = QuantizationType::kFp8Delayed, .amax_history_length = 7};
  EXPECT_EQ(to_json(config).at("fp8_amax_history_length"), 7);
  EXPECT_EQ(*train_config_from_json(to_json(config)), config);
  config.model.quantization = {.type = QuantizationType::kInt8,
                               .int8_weight_gradients = false,
                               .stochastic_rounding = false};
  EXPECT_EQ(*train_config_from_json(to_json(config)), config);
}

TEST(TrainConfig, AProfileIsWrittenWhereThereIsOne) {
  TrainConfig config = valid_config();
  EXPECT_FALSE(to_json(config).contains("profiler_steps"));
  config.profile = {.profiler = Profiler::kNsys, .skip_first_steps = 3, .steps = 2};
  EXPECT_EQ(*train_config_from_json(to_json(config)), config);
  config.profile.skip_first_steps = 100;
  EXPECT_THAT(std::string(validate(config).message()),
              HasSubstr("skip_first_n_steps_for_profiler is 100, but the run has 100 steps"));
}

TEST(TrainConfig, ValidationNamesTheKeys) {
  const auto error_with = [](const std::function<void(TrainConfig&)>& change) {
    TrainConfig config = valid_config();
    change(config);
    return std::string(validate(config).message());
  };
  EXPECT_THAT(error_with([](TrainConfig& c) { c.model.num_kv_heads = 3; }),
              HasSubstr("base_num_kv_heads (3) must divide base_num_query_heads (4)"));
  EXPECT_THAT(error_with([](TrainConfig& c) { c.model.head_dim = 15; }),
              HasSubstr("head_dim is 15"));
  EXPECT_THAT(error_with([](TrainConfig& c) { c.model.trainable_position_size = -1; }),
              HasSubstr("trainable_position_size is -1, but must be between 0 and"));
  EXPECT_THAT(error_with([](TrainConfig& c) { c.model.num_kv_heads = 0; }),
              HasSubstr("base_num_kv_heads is 0"));
  EXPECT_THAT(error_with([](TrainConfig& c) { c.model.norm_epsilon = std::nan(""); }),
              HasSubstr("normalization_layer_epsilon"));
  EXPECT_THAT(error_with([](TrainConfig& c) { c.optimizer.b2 = 1; }), HasSubstr("adam_b2 is 1"));
  EXPECT_THAT(error_with([](TrainConfig& c) { c.optimizer.schedule_steps = -1; }),
              HasSubstr("learning_rate_schedule_steps is -1"));
  EXPECT_THAT(error_with([](TrainConfig& c) { c.steps = 0; }), HasSubstr("steps is 0"));
  const auto evaluates = [](TrainConfig& c) {
    c.steps = 0;
    c.dataset_type = DatasetType::kShards;
    c.dataset_path = "/data";
    c.eval.interval = 1;
    c.eval.holdout_fraction = 0.1;
  };
  EXPECT_THAT(error_with([&](TrainConfig& c) { evaluates(c); }),
              HasSubstr("steps is 0, but enable_checkpointing is true"));
  EXPECT_THAT(error_with([&](TrainConfig& c) {
                evaluates(c);
                c.enable_checkpointing = false;
              }),
              "");
  EXPECT_THAT(error_with([](TrainConfig& c) { c.dataset_path.clear(); }),
              HasSubstr("dataset_path is empty"));
  EXPECT_THAT(error_with([](TrainConfig& c) { c.checkpoint_directory.clear(); }),
              HasSubstr("checkpoint_directory is empty"));
  EXPECT_THAT(error_with([](TrainConfig& c) { c.enable_emergency_checkpoint = true; }),
              HasSubstr("local_checkpoint_period is 0, but enable_emergency_checkpoint is true"));
  EXPECT_THAT(error_with([](TrainConfig& c) {
                c.enable_emergency_checkpoint = true;
                c.local_checkpoint_period = 5;
                c.enable_checkpointing = false;
              }),
              HasSubstr("enable_checkpointing is false"));
  EXPECT_THAT(error_with([](TrainConfig& c) { c.local_checkpoint_directory = "memory"; }),
              HasSubstr("local_checkpoint_directory is memory, but must begin with /"));
  EXPECT_THAT(error_with([](TrainConfig& c) { c.max_checkpoints_to_keep = 0; }),
              HasSubstr("max_num_checkpoints_to_keep is 0"));
  EXPECT_THAT(error_with([](TrainConfig& c) {
                c.per_device_batch_size = 1 << 20;
                c.max_target_length = 1 << 20;
              }),
              HasSubstr("per_device_batch_size (1048576) times max_target_length (1048576)"));
  EXPECT_THAT(
      error_with([](TrainConfig& c) {
        c.model.emb_dim = c.model.head_dim = 1 << 22;
        c.model.num_query_heads = 1 << 20;
      }),
      HasSubstr("parameters, but must have at most 17592186044416: base_emb_dim is 4194304, "
                "base_num_query_heads times head_dim 4.39805e+12"));
  EXPECT_THAT(error_with([](TrainConfig& c) {
                c.model.mlp_dim = 1 << 24;
                c.per_device_batch_size = 1 << 15;
                c.max_target_length = 1 << 15;
              }),
              HasSubstr("a step of per_device_batch_size (32768) times max_target_length (32768) "
                        "tokens retains"));
  // The rows that ranks that share experts may send to one.
  const auto error_on_ranks = [&](int32_t ranks) {
    return error_with([&](TrainConfig& c) {
      c.model.experts = {.count = 1024, .per_token = 1, .mlp_dim = 1 << 22};
      c.model.emb_dim = 2;
      c.per_device_batch_size = 1;
      c.max_target_length = 1 << 20;
      c.mesh.ici[static_cast<size_t>(MeshAxis::kExpert)] = ranks;
    });
  };
  EXPECT_THAT(error_on_ranks(1), Not(HasSubstr("tokens retains")));
  EXPECT_THAT(error_on_ranks(1024), HasSubstr("tokens retains"));
}

}  // namespace
}  // namespace muster::trainer
