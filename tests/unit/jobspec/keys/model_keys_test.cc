#include "jobspec/keys/model_keys.h"

#include <gmock/gmock.h>

#include <cmath>

#include "tests/unit/jobspec/config_files.h"

namespace muster::jobspec {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using trainer::Activation;
using trainer::ModelConfig;
using trainer::NormType;
using trainer::PositionType;

class ModelKeys : public ConfigFiles {
 protected:
  static ModelConfig model(std::vector<std::string> overrides) {
    const auto job = resolve(std::move(overrides));
    EXPECT_TRUE(job.ok()) << job.status();
    return job.ok() ? job->train.model : ModelConfig();
  }
};

TEST_F(ModelKeys, Llama2AndMistralAreTheSameBlock) {
  const ModelConfig llama = model({});
  EXPECT_EQ(llama.norm_type, NormType::kRms);
  EXPECT_EQ(llama.norm_gain_offset, 0);
  EXPECT_EQ(llama.position_type, PositionType::kRope);
  EXPECT_TRUE(llama.gated_mlp);
  EXPECT_EQ(llama.activation, Activation::kSilu);
  EXPECT_FALSE(llama.qkv_bias || llama.out_bias || llama.mlp_bias || llama.scale_embeddings);
  EXPECT_EQ(model({"decoder_block=mistral"}), llama);
}

TEST_F(ModelKeys, Gemma) {
  const ModelConfig gemma = model({"model_name=gemma-2b"});
  EXPECT_EQ(gemma.norm_type, NormType::kRms);
  EXPECT_EQ(gemma.norm_gain_offset, 1);
  EXPECT_TRUE(gemma.scale_embeddings);
  EXPECT_EQ(gemma.activation, Activation::kGelu);
  EXPECT_TRUE(gemma.gated_mlp);
  EXPECT_TRUE(gemma.logits_via_embedding);
  EXPECT_EQ(gemma.logits_scale, 1);
  EXPECT_EQ(gemma.norm_epsilon, 1e-6);
  EXPECT_EQ(gemma.vocab_size, 256'000);
}

TEST_F(ModelKeys, Gpt3) {
  const ModelConfig gpt = model({"model_name=gpt3-52k"});
  EXPECT_EQ(gpt.norm_type, NormType::kLayer);
  EXPECT_EQ(gpt.norm_gain_offset, 1);
  EXPECT_EQ(gpt.position_type, PositionType::kLearned);
  EXPECT_EQ(gpt.trainable_position_size, 2048);
  EXPECT_TRUE(gpt.qkv_bias && gpt.out_bias && gpt.mlp_bias);
  EXPECT_FALSE(gpt.gated_mlp);
  EXPECT_EQ(gpt.activation, Activation::kGelu);
  EXPECT_EQ(gpt.logits_scale, 1);
}

TEST_F(ModelKeys, PaxAndAxlearnUseInterleavedRope) {
  for (const char* name : {"model_name=LLaMA7B", "model_name=fuji-7B-v2"}) {
    EXPECT_EQ(model({name}).position_type, PositionType::kRopeInterleaved) << name;
  }
  EXPECT_EQ(model({"model_name=fuji-7B-v2"}).logits_scale, 1);
}

TEST_F(ModelKeys, Activations) {
  const auto expect = [&](const std::string& list, Activation activation, bool gated) {
    const ModelConfig config = model({"mlp_activations=" + list});
    EXPECT_EQ(config.activation, activation) << list;
    EXPECT_EQ(config.gated_mlp, gated) << list;
  };
  for (const trainer::ActivationRow& row : trainer::kActivationRows) {
    const std::string name(row.name);
    expect("['" + name + "', 'linear']", row.activation, true);
    expect("[\"" + name + "\",linear]", row.activation, true);
    if (!row.plain.empty()) expect("[" + name + "]", row.activation, false);
  }
  EXPECT_THAT(error_of(resolve({"mlp_activations=['silu']"})),
              AllOf(HasSubstr("silu"), HasSubstr("set mlp_activations=['silu', 'linear']")));
}

// Reads the value without the key table, whose list of allowed values would reject it first.
absl::Status read_unchecked(const std::string& key, nlohmann::json value, ModelConfig& model) {
  Settings settings;
  settings[key] = {std::move(value), kCommandLine, Layer::kCommandLine};
  settings["num_experts"] = {2, kCommandLine, Layer::kCommandLine};
  SettingsReader reader(settings);
  std::vector<std::string> warnings;
  return read_model(reader, model, warnings);
}

TEST_F(ModelKeys, ActivationOutsideTheTableIsAnError) {
  for (const char* key : {"mlp_activations", "expert_activations"}) {
    const nlohmann::json rejected[] = {
        {"tanh"},           {"tanh", "linear"}, {"gelu", "tanh"}, {"linear", "gelu"},
        {"linear", "silu"}, {"linear"},         {"silu", "silu"}, {"silu", "gelu", "linear"}};
    for (const nlohmann::json& value : rejected) {
      ModelConfig model;
      const absl::Status status = read_unchecked(key, value, model);
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << key << "=" << value;
      EXPECT_THAT(status.message(), AllOf(HasSubstr(std::string(key) + "=" + show(value)),
                                          HasSubstr("must be ['silu'], ['gelu'] or ['relu']"),
                                          HasSubstr("'linear'")));
    }
    ModelConfig model;
    EXPECT_TRUE(read_unchecked(key, {"relu", "linear"}, model).ok());
    EXPECT_EQ(key == std::string("mlp_activations") ? model.activation : model.experts.activation,
              Activation::kRelu);
  }
}

TEST_F(ModelKeys, TiedHeadsAreNormalisedAsInMaxText) {
  const double root = std::sqrt(2048.0);
  EXPECT_EQ(model({}).logits_scale, 1);
  EXPECT_EQ(model({"logits_via_embedding=true"}).logits_scale, 1 / root);
  EXPECT_EQ(model({"logits_via_embedding=true", "normalize_embedding_logits=false"}).logits_scale,
            1);
  EXPECT_EQ(model({"decoder_block=gemma", "logits_via_embedding=true"}).logits_scale, 1);
  EXPECT_EQ(model({"decoder_block=gemma", "logits_via_embedding=true",
                   "normalize_embedding_logits=false"})
                .logits_scale,
            root);
  EXPECT_EQ(model({"logits_via_embedding=true", "global_parameter_scale=4"}).logits_scale,
            1 / std::sqrt(4096.0));
}

TEST_F(ModelKeys, Llama31StretchesRope) {
  const ModelConfig plain = model({"model_name=llama3-8b"});
  EXPECT_EQ(plain.rope_scaling, trainer::RopeScaling());
  const ModelConfig stretched = model({"model_name=llama3.1-8b"});
  EXPECT_EQ(stretched.rope_scaling.factor, 8);
  EXPECT_EQ(stretched.rope_scaling.original_max_position, 8192);
  EXPECT_EQ(model({"model_name=llama3.1-8b", "rope_use_scale=false", "override_model_config=true"})
                .rope_scaling,
            trainer::RopeScaling());
  const ModelConfig mine =
      model({"rope_type=llama3.1", "rope_scaling_factor=32", "rope_low_frequency_factor=2",
             "rope_high_frequency_factor=5", "rope_original_max_position=4096"});
  EXPECT_EQ(mine.rope_scaling, (trainer::RopeScaling{32, 2, 5, 4096}));
  EXPECT_THAT(resolve({"rope_scaling_factor=32"})->warnings,
              Contains(HasSubstr("rope_scaling_factor has no effect")));
}

TEST_F(ModelKeys, LearnedPositionsNeedTheirSize) {
  EXPECT_THAT(error_of(resolve({"decoder_block=gpt3"})),
              HasSubstr("for example trainable_position_size=2048"));
  EXPECT_THAT(error_of(resolve({"trainable_position_size=2048"})), HasSubstr("RoPE"));
  EXPECT_THAT(error_of(resolve({"decoder_block=gpt3", "trainable_position_size=1024"})),
              AllOf(HasSubstr("max_target_length is 2048"), HasSubstr("1024")));
  EXPECT_EQ(model({"position_type=learned", "trainable_position_size=2048"}).position_type,
            PositionType::kLearned);
}

TEST_F(ModelKeys, Attention) {
  const ModelConfig config =
      model({"attention_type=local_sliding", "sliding_window_size=128", "attention_bias=true",
             "attn_logits_soft_cap=50", "final_logits_soft_cap=30", "z_loss_multiplier=1e-4",
             "query_scale=0.5", "init_std=0.02"});
  EXPECT_EQ(config.sliding_window_size, 128);
  EXPECT_TRUE(config.qkv_bias && config.out_bias && !config.mlp_bias);
  EXPECT_EQ(config.attn_logits_soft_cap, 50);
  EXPECT_EQ(config.final_logits_soft_cap, 30);
  EXPECT_EQ(config.z_loss_multiplier, 1e-4);
  EXPECT_EQ(config.query_scale, 0.5);
  EXPECT_EQ(config.init_std, 0.02);
  EXPECT_THAT(error_of(resolve({"attention_type=local_sliding"})),
              HasSubstr("sliding_window_size=0"));
  EXPECT_THAT(resolve({"sliding_window_size=128"})->warnings,
              Contains(HasSubstr("attention_type is global")));
  EXPECT_THAT(error_of(resolve({"attn_logits_soft_cap=-1"})), HasSubstr("attn_logits_soft_cap"));
}

TEST_F(ModelKeys, Dropout) {
  const ModelConfig plain = model({});
  EXPECT_EQ(plain.dropout_rate, 0);
  EXPECT_EQ(plain.input_dropout_rate, 0);
  const ModelConfig both = model({"dropout_rate=0.1"});
  EXPECT_EQ(both.dropout_rate, 0.1);
  EXPECT_EQ(both.input_dropout_rate, 0.1);
  EXPECT_EQ(model({"dropout_rate=0.1", "input_dropout_rate=0"}).input_dropout_rate, 0);
  const ModelConfig pax = model({"model_name=GPT5B"});
  EXPECT_EQ(pax.dropout_rate, 0);
  EXPECT_EQ(pax.input_dropout_rate, 0.1);
  EXPECT_EQ(model({"model_name=GPT5B", "enable_dropout=false"}).input_dropout_rate, 0);
  // MaxText's Llama has dropout disabled.
  const auto off = resolve({"model_name=llama2-7b", "dropout_rate=0.1"});
  ASSERT_TRUE(off.ok()) << off.status();
  EXPECT_EQ(off->train.model.dropout_rate, 0);
  EXPECT_THAT(off->warnings, Contains("dropout_rate=0.1 has no effect: enable_dropout is false"));
  EXPECT_EQ(model({"model_name=llama2-7b", "dropout_rate=0.1", "enable_dropout=true"}).dropout_rate,
            0.1);
  EXPECT_THAT(error_of(resolve({"dropout_rate=1"})),
              AllOf(HasSubstr("dropout_rate is 1"), HasSubstr("[0, 1)")));
  EXPECT_THAT(error_of(resolve({"input_dropout_rate=-0.5"})),
              HasSubstr("input_dropout_rate is -0.5"));
}

TEST_F(ModelKeys, ExpertsTakeTheMlpsPlace) {
  EXPECT_FALSE(model({}).experts.in_layer(0));
  const trainer::ExpertConfig mixtral = model({"model_name=mixtral-8x7b"}).experts;
  EXPECT_EQ(mixtral, (trainer::ExpertConfig{.count = 8, .per_token = 2, .mlp_dim = 14336}));
  EXPECT_TRUE(mixtral.in_layer(0) && mixtral.in_layer(31));
  EXPECT_EQ(mixtral.capacity(4096), 0);  // no token is dropped

  // MaxText's choice of layers, and GLaM's.
  const auto every_fourth = model({"num_experts=4", "interleave_moe_layer_step=4"}).experts;
  EXPECT_TRUE(!every_fourth.in_layer(0) && every_fourth.in_layer(3) && every_fourth.in_layer(7));
  const auto glam =
      model({"num_experts=64", "num_experts_per_tok=2", "base_moe_mlp_dim=48", "first_moe_layer=0",
             "interleave_moe_layer_step=2", "capacity_factor=2", "expert_activations=['relu']",
             "router_style=pax", "load_balance_loss_weight=0.01", "num_groups=8"})
          .experts;
  EXPECT_TRUE(glam.in_layer(0) && !glam.in_layer(1) && glam.in_layer(2));
  EXPECT_EQ(glam.activation, Activation::kRelu);
  EXPECT_FALSE(glam.gated);
  EXPECT_EQ(glam.mlp_dim, 48);
  EXPECT_EQ(glam.balance_weight, 0.01);
  EXPECT_EQ(glam.num_groups, 8);
  EXPECT_EQ(glam.capacity(8192), 256);
  EXPECT_EQ(glam.capacity(1000), 32);  // 31 and a quarter, rounded up to a multiple of four
  EXPECT_EQ(model({"num_experts=8", "num_experts_per_tok=2", "capacity_factor=1.5"})
                .experts.capacity(101),
            39);  // 1.5 * ceil(101 * 2 / 8)
}

// MaxText's layers/models.py: decoder_block=default for the sizes of base.yml.
TEST_F(ModelKeys, MaxTextsDefaultBlock) {
  ModelConfig expected = model({});
  expected.parallel_block = true;
  EXPECT_EQ(model({"decoder_block=default"}), expected);
  EXPECT_EQ(expected.emb_dim, 2048);
  EXPECT_EQ(expected.num_query_heads, 16);
  EXPECT_EQ(expected.num_kv_heads, 16);
  EXPECT_EQ(expected.head_dim, 128);
  EXPECT_EQ(expected.mlp_dim, 7168);
  EXPECT_EQ(expected.num_layers, 16);
  EXPECT_EQ(expected.vocab_size, 32'000);
  EXPECT_EQ(expected.activation, Activation::kSilu);
  EXPECT_TRUE(expected.gated_mlp);
  EXPECT_THAT(error_of(resolve({"decoder_block=default", "num_experts=4"})),
              AllOf(HasSubstr("num_experts is 4"), HasSubstr("decoder_block is default")));
}

TEST_F(ModelKeys, RelativePositions) {
  const ModelConfig t5 = model({"position_type=relative", "attention_extra_zero=true"});
  EXPECT_EQ(t5.position_type, trainer::PositionType::kRelative);
  EXPECT_EQ(t5.relative_buckets, (trainer::RelativeBuckets{32, 128}));
  EXPECT_TRUE(t5.attention_extra_zero);
  EXPECT_FALSE(model({}).relative_buckets.exist());
  EXPECT_THAT(error_of(resolve({"position_type=relative", "relative_position_buckets=1"})),
              AllOf(HasSubstr("relative_position_buckets is 1"), HasSubstr("between 2 and")));
  EXPECT_THAT(
      error_of(resolve({"position_type=relative", "relative_position_max_distance=16"})),
      AllOf(HasSubstr("relative_position_max_distance is 16"), HasSubstr("between 17 and")));
  EXPECT_THAT(error_of(resolve({"position_type=relative", "trainable_position_size=8"})),
              HasSubstr("this model has relative positions"));
  const auto rope = resolve({"relative_position_buckets=16"});
  ASSERT_TRUE(rope.ok()) << rope.status();
  EXPECT_THAT(rope->warnings,
              Contains("relative_position_buckets has no effect: position_type is not relative"));
}

TEST_F(ModelKeys, ContradictoryExpertsAreRejected) {
  EXPECT_THAT(error_of(resolve({"num_experts=4", "num_experts_per_tok=5"})),
              AllOf(HasSubstr("num_experts_per_tok is 5"), HasSubstr("num_experts (4)")));
  EXPECT_THAT(error_of(resolve({"num_experts=0"})), HasSubstr("num_experts is 0"));
  EXPECT_THAT(error_of(resolve({"num_experts=4", "base_moe_mlp_dim=0"})),
              HasSubstr("base_moe_mlp_dim is 0"));
  EXPECT_THAT(error_of(resolve({"num_experts=4", "first_moe_layer=99"})),
              AllOf(HasSubstr("first_moe_layer is 99"), HasSubstr("16 layers")));
  EXPECT_THAT(error_of(resolve({"num_experts=4", "load_balance_loss_weight=-1"})),
              HasSubstr("load_balance_loss_weight is -1"));
  const auto dense = resolve({"capacity_factor=1.25"});
  ASSERT_TRUE(dense.ok()) << dense.status();
  EXPECT_THAT(dense->warnings, Contains("capacity_factor has no effect: num_experts is 1"));
  const auto by_sequence = resolve({"num_experts=4", "num_groups=4"});
  ASSERT_TRUE(by_sequence.ok()) << by_sequence.status();
  EXPECT_THAT(by_sequence->warnings,
              Contains("num_groups has no effect: router_style is maxtext, whose groups are "
                       "sequences"));
}

// A group belongs to one rank and one micro-batch.
TEST_F(ModelKeys, GroupsCutByTheMeshAreRejected) {
  const auto problem = [&](std::vector<std::string> keys) {
    keys.insert(keys.end(), {"num_experts=4", "num_experts_per_tok=2", "router_style=pax",
                             "per_device_batch_size=2", "max_target_length=12"});
    return error_of(resolve(keys));
  };
  EXPECT_EQ(problem({"num_groups=8", "ici_expert_parallelism=2", "ici_fsdp_parallelism=2"}), "");
  EXPECT_THAT(problem({"num_groups=5", "ici_expert_parallelism=2", "ici_fsdp_parallelism=1",
                       "gradient_accumulation_steps=2"}),
              AllOf(HasSubstr("num_groups is 5"), HasSubstr("4 micro-batches of 24 tokens"),
                    HasSubstr("2 slices of the mesh, gradient_accumulation_steps=2"),
                    HasSubstr("4 or 8 would do, or 0")));
  EXPECT_THAT(problem({"num_groups=1", "ici_fsdp_parallelism=2"}), HasSubstr(": 2 would do"));
  EXPECT_THAT(problem({"num_groups=1000", "ici_fsdp_parallelism=1"}), HasSubstr(": 24 would do"));
  EXPECT_THAT(problem({"num_groups=-1"}), HasSubstr("num_groups is -1"));
  EXPECT_THAT(problem({"ici_expert_parallelism=3", "ici_fsdp_parallelism=1"}),
              AllOf(HasSubstr("ici_expert_parallelism is 3"), HasSubstr("num_experts is 4"),
                    HasSubstr("as many ranks would do with")));
  EXPECT_THAT(error_of(resolve({"ici_expert_parallelism=2", "ici_fsdp_parallelism=1"})),
              AllOf(HasSubstr("ici_expert_parallelism is 2"), HasSubstr("no experts")));
}

TEST_F(ModelKeys, UnsupportedModelsAreRejected) {
  for (const char* text :
       {"decoder_block=deepseek", "decoder_block=gemma2", "router_style=switch", "rope_type=yarn",
        "attention_type=mla", "position_type=alibi", "rope_linear_scaling_factor=8"}) {
    EXPECT_THAT(error_of(resolve({text})), AllOf(HasSubstr(text), HasSubstr("; set "))) << text;
  }
}

TEST_F(ModelKeys, AModelsNameFixesItsArchitecture) {
  for (const char* text : {"decoder_block=gemma", "mlp_activations=['gelu']", "head_dim=64",
                           "logits_via_embedding=true", "global_parameter_scale=2"}) {
    EXPECT_THAT(error_of(resolve({"model_name=llama2-7b", text})),
                AllOf(HasSubstr("differs from model llama2-7b, which has"),
                      HasSubstr("override_model_config=true")))
        << text;
  }
  EXPECT_TRUE(resolve({"model_name=llama2-7b", "global_parameter_scale=1"}).ok());
  EXPECT_TRUE(
      resolve({"model_name=llama2-tiny", "global_parameter_scale=2", "override_model_config=true"})
          .ok());
}

TEST_F(ModelKeys, KeysOutsideTheModelsFileAreFree) {
  const ModelConfig mistral =
      model({"model_name=mistral-7b", "attention_type=local_sliding", "sliding_window_size=4096"});
  EXPECT_EQ(mistral.sliding_window_size, 4096);
  EXPECT_TRUE(model({"model_name=llama2-7b", "attention_bias=true"}).qkv_bias);
  EXPECT_EQ(model({"model_name=llama2-7b", "rope_max_timescale=500000"}).rope_max_timescale,
            500'000);
  EXPECT_TRUE(resolve({"model_name=llama2-7b", "z_loss_multiplier=1e-4"}).ok());
}

}  // namespace
}  // namespace muster::jobspec
