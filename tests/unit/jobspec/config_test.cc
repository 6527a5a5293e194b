#include "jobspec/config.h"

#include <gmock/gmock.h>

#include "tests/unit/jobspec/config_files.h"

namespace muster::jobspec {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ConfigTest : public ConfigFiles {};

TEST_F(ConfigTest, ShippedFileLoadsWithoutWarnings) {
  const auto config = load({});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_THAT(config->warnings, IsEmpty());
  EXPECT_EQ(config->settings.at("steps").value, 150001);
  EXPECT_THAT(config->settings.at("steps").origin, HasSubstr("base.yml:"));
}

TEST_F(ConfigTest, CommandLineWinsAndTheLastOfARepeatedKeyCounts) {
  const auto config = load({"steps=5", "steps=7"});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->settings.at("steps").value, 7);
  EXPECT_EQ(config->settings.at("steps").origin, "command line");
}

TEST_F(ConfigTest, UnknownKeyNamesTheNearest) {
  EXPECT_THAT(
      error_of(load({"per_devce_batch_size=2"})),
      AllOf(HasSubstr("per_devce_batch_size"), HasSubstr("did you mean per_device_batch_size?")));
}

TEST_F(ConfigTest, WordsThatAreNoOverride) {
  EXPECT_THAT(error_of(load({"steps"})), AllOf(HasSubstr("steps"), HasSubstr("key=value")));
  EXPECT_FALSE(load({"=5"}).ok());
  EXPECT_FALSE(load({""}).ok());
}

TEST_F(ConfigTest, WrongTypeNamesKeyValueAndType) {
  EXPECT_EQ(error_of(load({"steps=many"})), "steps=many: expected an integer");
  const std::string path = write("mine.yml", "\nsteps: [1, 2]\n");
  EXPECT_THAT(error_of(load({}, {}, path)),
              AllOf(HasSubstr("mine.yml:2"), HasSubstr("an integer")));
  const std::string list = write("list.yml", "run_name: [a]\n");
  EXPECT_THAT(error_of(load({}, {}, list)), HasSubstr("expected text"));
}

TEST_F(ConfigTest, EnvironmentOverridesFiles) {
  const auto config = load({}, {{"M_STEPS", "9"}, {"PATH", "/bin"}, {"XM_STEPS", "3"}});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->settings.at("steps").value, 9);
  EXPECT_EQ(config->settings.at("steps").origin, "environment M_STEPS");
}

TEST_F(ConfigTest, EnvironmentErrors) {
  EXPECT_THAT(error_of(load({}, {{"M_STEP", "9"}})),
              AllOf(HasSubstr("M_STEP"), HasSubstr("steps")));
  EXPECT_THAT(error_of(load({"steps=4"}, {{"M_STEPS", "9"}})),
              AllOf(HasSubstr("steps is set twice"), HasSubstr("M_STEPS")));
}

TEST_F(ConfigTest, AliasesSetTheirNewNames) {
  const auto config =
      load({"cosine_learning_rate_final_fraction=0.5", "base_num_heads=8", "save_period=3"});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->settings.at("learning_rate_final_fraction").value, 0.5);
  EXPECT_EQ(config->settings.at("base_num_query_heads").value, 8);
  EXPECT_EQ(config->settings.at("base_num_kv_heads").value, 8);
  EXPECT_EQ(config->settings.at("checkpoint_period").value, 3);
}

TEST_F(ConfigTest, InheritanceInAChain) {
  write("base.yml", "steps: 1\nlog_period: 1\nlearning_rate: 1.e-3\n");
  write("site.yml", "base_config: base.yml\nlog_period: 2\nlearning_rate: 2.e-3\n");
  const auto config =
      load({}, {}, write("job.yml", "base_config: \"site.yml\"\nlearning_rate: 3.e-3\n"));
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->settings.at("steps").value, 1);
  EXPECT_EQ(config->settings.at("log_period").value, 2);
  EXPECT_EQ(config->settings.at("learning_rate").value, 3e-3);
}

TEST_F(ConfigTest, InheritanceInACircle) {
  write("a.yml", "base_config: b.yml\n");
  EXPECT_THAT(error_of(load({}, {}, write("b.yml", "base_config: a.yml\n"))), HasSubstr("circle"));
}

TEST_F(ConfigTest, ModelFileOverridesBase) {
  const auto config = load({"model_name=llama2-70b"});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->settings.at("base_num_kv_heads").value, 8);
  EXPECT_THAT(config->settings.at("base_num_kv_heads").origin, HasSubstr("llama2-70b.yml:"));
}

TEST_F(ConfigTest, ModelKeyOnTheCommandLine) {
  EXPECT_THAT(error_of(load({"model_name=llama2-7b", "base_emb_dim=64"})),
              AllOf(HasSubstr("base_emb_dim=64"), HasSubstr("4096"),
                    HasSubstr("override_model_config=true")));
  EXPECT_TRUE(load({"model_name=llama2-7b", "base_emb_dim=4096"}).ok());
  const auto overridden =
      load({"model_name=llama2-7b", "base_emb_dim=64", "override_model_config=true"});
  ASSERT_TRUE(overridden.ok()) << overridden.status();
  EXPECT_EQ(overridden->settings.at("base_emb_dim").value, 64);
  EXPECT_FALSE(load({"model_name=llama2-7b"}, {{"M_BASE_EMB_DIM", "64"}}).ok());
}

TEST_F(ConfigTest, RunKeyOfAModelIsOnlyADefault) {
  const auto preset = load({"model_name=llama2-tiny"});
  ASSERT_TRUE(preset.ok()) << preset.status();
  EXPECT_EQ(preset->settings.at("max_target_length").value, 256);
  const auto config = load({"model_name=llama2-tiny", "max_target_length=128"});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->settings.at("max_target_length").value, 128);
  EXPECT_TRUE(load({"model_name=llama2-tiny"}, {{"M_MAX_TARGET_LENGTH", "64"}}).ok());
  EXPECT_FALSE(load({"model_name=llama2-tiny", "vocab_size=320"}).ok());
}

TEST_F(ConfigTest, UnknownModels) {
  EXPECT_THAT(error_of(load({"model_name=llama2-7c"})),
              AllOf(HasSubstr("llama2-7c"), HasSubstr("llama2-7b")));
  EXPECT_THAT(error_of(load({"model_name=../base"})), HasSubstr("no such model"));
}

TEST_F(ConfigTest, RestrictedValuesSayWhatWorks) {
  EXPECT_THAT(error_of(load({"weight_dtype=bfloat16"})), HasSubstr("set weight_dtype=float32"));
  EXPECT_THAT(error_of(load({"hardware=gpu"})), HasSubstr("set hardware=cpu"));
  EXPECT_THAT(error_of(load({"dataset_type=tfds"})), HasSubstr("dataset_type=shards"));
  EXPECT_THAT(error_of(load({"mlp_activations=['tanh']"})), HasSubstr("SwiGLU"));
}

TEST_F(ConfigTest, KeysWithoutEffectWarnOnceAndSayWhy) {
  const auto config =
      load({"scan_layers=false", "use_iota_embed=true", "async_checkpointing=true"});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_THAT(config->warnings, ElementsAre(HasSubstr("use_iota_embed=true has no effect"),
                                            HasSubstr("scan_layers=false has no effect")));
}

}  // namespace
}  // namespace muster::jobspec
