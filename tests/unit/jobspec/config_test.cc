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

// A copy of Muster's base.yml, or of MaxText's, with the user's values in it.
TEST_F(ConfigTest, EditsInABaseOfOnesOwnAreKnownAndWarnedAbout) {
  const auto load_own = [&](const std::string& text) {
    return load_config({.path = write("own/base.yml", text),
                        .flags = {},
                        .overrides = {},
                        .environment = {},
                        .shipped_base = shipped()});
  };
  const auto copy = load_own(
      "steps: 150_001\nhardware: 'tpu'\ndataset_type: c4\nmesh_axes: ['data', 'fsdp']\n"
      "tokenizer_path: \"assets/tokenizer.llama2\"\ngrain_worker_count: 4\n");
  ASSERT_TRUE(copy.ok()) << copy.status();
  EXPECT_THAT(copy->edits, IsEmpty()) << "these are MaxText's values";
  const auto own = load_own(
      "steps: 7\ndtype: float32\ngcs_metrics: True\ndataset_path: /data/mine\n"
      "dataset_type: synthetic\nlog_period: 100\n");
  ASSERT_TRUE(own.ok()) << own.status();
  EXPECT_THAT(own->edits, ElementsAre("dataset_path", "dtype", "gcs_metrics", "steps"));
  EXPECT_THAT(own->warnings,
              ElementsAre(AllOf(HasSubstr("dataset_path=/data/mine ("), HasSubstr("own/base.yml:4"),
                                HasSubstr("has no effect: dataset_type is synthetic ("),
                                HasSubstr("own/base.yml:5")),
                          AllOf(HasSubstr("gcs_metrics=true ("), HasSubstr("has no effect"))));
  EXPECT_THAT(load({})->edits, IsEmpty());
}

TEST_F(ConfigTest, UnknownKeyNamesTheNearest) {
  EXPECT_THAT(
      error_of(load({"per_devce_batch_size=2"})),
      AllOf(HasSubstr("per_devce_batch_size"), HasSubstr("did you mean per_device_batch_size?")));
}

TEST_F(ConfigTest, InvalidOverrides) {
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

TEST_F(ConfigTest, VariablesOfKeysAreUpperCase) {
  EXPECT_THAT(error_of(load({}, {{"M_steps", "9"}})),
              AllOf(HasSubstr("M_steps"), HasSubstr("capitals: M_STEPS")));
}

TEST_F(ConfigTest, TwoNamesOfOneKeyInOnePlace) {
  EXPECT_THAT(error_of(load({}, {{"M_SAVE_PERIOD", "9"}, {"M_CHECKPOINT_PERIOD", "9"}})),
              AllOf(HasSubstr("environment M_CHECKPOINT_PERIOD"), HasSubstr("M_SAVE_PERIOD"),
                    HasSubstr("are the same key")));
  const std::string text = "checkpoint_period: 3\n\nsave_period: 4\n";
  EXPECT_THAT(error_of(load({}, {}, write("mine.yml", text))),
              AllOf(HasSubstr("mine.yml:3: save_period and checkpoint_period"),
                    HasSubstr("mine.yml:1"), HasSubstr("are the same key")));
  write("models/odd.yml", text);
  EXPECT_THAT(error_of(load({"model_name=odd"}, {}, write("base.yml", ""))),
              HasSubstr("are the same key"));
  EXPECT_TRUE(load({"save_period=4", "checkpoint_period=3"}).ok());
}

TEST_F(ConfigTest, MessagesNameTheAliasThatWasTyped) {
  EXPECT_EQ(error_of(load({"save_period=x"})), "save_period=x: expected an integer");
  EXPECT_EQ(load({"save_period=7"})->settings.at("checkpoint_period").origin,
            "command line (save_period)");
}

TEST_F(ConfigTest, TheLoraBlock) {
  EXPECT_THAT(error_of(load({}, {}, write("a.yml", "lora:\n  lora_input_adapters_path: x\n"))),
              AllOf(HasSubstr("lora_input_adapters_path=x"), HasSubstr("loads adapters")));
  write("base.yml", "");
  const auto config = load(
      {}, {}, write("b.yml", "base_config: base.yml\nlora: {enable_lora: True, lora_rank: 8}\n"));
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->settings.at("enable_lora").value, true);
  EXPECT_EQ(config->settings.at("lora_rank").value, 8);
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

TEST_F(ConfigTest, InheritanceCycle) {
  write("a.yml", "base_config: b.yml\n");
  EXPECT_THAT(error_of(load({}, {}, write("b.yml", "base_config: a.yml\n"))), HasSubstr("cycle"));
}

TEST_F(ConfigTest, AnEmptyPathIsRejected) {
  EXPECT_THAT(error_of(load({}, {}, "")), HasSubstr("the path of the config is empty"));
}

TEST_F(ConfigTest, InheritanceFromAListOfWhichLaterFilesWin) {
  write("base.yml", "steps: 1\nlog_period: 1\nlearning_rate: 1.e-3\n");
  write("site.yml", "base_config: base.yml\nlog_period: 2\nlearning_rate: 2.e-3\n");
  write("team.yml", "base_config: [base.yml]\nlearning_rate: 3.e-3\n");
  const auto config =
      load({}, {}, write("job.yml", "base_config: [site.yml, team.yml]\nrun_name: a\n"));
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->settings.at("steps").layer, Layer::kBaseFile);
  EXPECT_EQ(config->settings.at("log_period").value, 2);  // base.yml is not read again
  EXPECT_EQ(config->settings.at("learning_rate").value, 3e-3);
  EXPECT_EQ(config->root, (folder_ / "base.yml").string());
}

TEST_F(ConfigTest, InheritanceErrors) {
  EXPECT_THAT(error_of(load({}, {}, write("a.yml", "\nbase_config: none.yml\n"))),
              AllOf(HasSubstr("a.yml:2: base_config=none.yml"), HasSubstr("no such file")));
  EXPECT_THAT(error_of(load({}, {}, write("b.yml", "base_config: {x: y}\n"))),
              HasSubstr("a file or a list of files"));
  EXPECT_THAT(error_of(load({}, {}, write("c.yml", "base_config: [[a.yml]]\n"))),
              HasSubstr("a file or a list of files"));
}

TEST_F(ConfigTest, InheritanceIsBounded) {
  std::string list;
  for (int i = 0; i < 64; ++i) {
    const std::string name = "part" + std::to_string(i) + ".yml";
    write(name, "");
    list += (list.empty() ? "" : ", ") + name;
  }
  EXPECT_TRUE(load({}, {}, write("part0.yml", "base_config: part1.yml\n")).ok());
  EXPECT_THAT(error_of(load({}, {}, write("wide.yml", "base_config: [" + list + "]\n"))),
              HasSubstr("more than 64 files"));
}

TEST_F(ConfigTest, MaxTextsBaseFileIsReplacedByOurs) {
  const auto with_shipped = [&](const std::string& path) {
    return load_config({.path = path,
                        .flags = {},
                        .overrides = {"model_name=llama2-tiny"},
                        .environment = {},
                        .shipped_base = shipped()});
  };
  const auto saying = HasSubstr("does not exist: using Muster's, " + shipped());
  const auto recipe = with_shipped(write("recipe.yml", "base_config: \"base.yml\"\nsteps: 9\n"));
  ASSERT_TRUE(recipe.ok()) << recipe.status();
  EXPECT_EQ(recipe->settings.at("steps").value, 9);
  EXPECT_THAT(recipe->shipped_base_note, AllOf(HasSubstr("recipe.yml:1"), saying));
  EXPECT_THAT(recipe->warnings, ::testing::IsEmpty());
  const auto script = with_shipped("MaxText/configs/base.yml");
  ASSERT_TRUE(script.ok()) << script.status();
  EXPECT_THAT(script->shipped_base_note, saying);
  for (const char* path : {"base.yml", "configs/base.yml", "/not/here/configs/base.yml"})
    EXPECT_TRUE(with_shipped(path).ok()) << path;
  EXPECT_THAT(error_of(with_shipped("other/base.yml")), HasSubstr("No such file or directory"));
}

TEST_F(ConfigTest, ABaseFileWithoutModelsHasTheShippedOnes) {
  const std::string own = write("alone/base.yml", "steps: 7\nlearning_rate: 1.e-4\n");
  ConfigSource source{
      .path = own, .flags = {}, .overrides = {"model_name=llama2-tiny"}, .environment = {}};
  EXPECT_THAT(error_of(load_config(source)), HasSubstr("no models in"));
  source.shipped_base = shipped();
  const auto config = load_config(source);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->settings.at("steps").value, 7);
  EXPECT_TRUE(config->settings.contains("base_emb_dim"));
  write("alone/models/mine.yml", "base_emb_dim: 8\n");
  EXPECT_THAT(error_of(load_config(source)), HasSubstr("no such model")) << "it has its own";
}

TEST_F(ConfigTest, UnknownModelsHaveTheNearestThree) {
  EXPECT_THAT(
      error_of(load({"model_name=fuji-7B-v4"})),
      AllOf(HasSubstr("; the nearest of "), HasSubstr(": fuji-7B-v1, fuji-7B-v2, fuji-7B-v3")));
  EXPECT_THAT(error_of(load({"model_name=llama2-7c"})), HasSubstr("did you mean llama2-7b?"));
}

TEST_F(ConfigTest, MaxTextsOtherSpellings) {
  EXPECT_EQ(load({"hardware=gpu_multiprocess"})->settings.at("hardware").value, "gpu");
  const auto tpu = load({"hardware=tpu"});
  ASSERT_TRUE(tpu.ok()) << tpu.status();
  EXPECT_EQ(tpu->settings.at("hardware").value, "auto");
  EXPECT_THAT(tpu->warnings, ElementsAre(HasSubstr("there are no TPUs here")));
  EXPECT_EQ(load({"steps = 5"})->settings.at("steps").value, 5);
  EXPECT_EQ(load({"prompt= in front"})->settings.at("prompt").value, " in front");
  EXPECT_THAT(error_of(load({"attention=cudnn_flash"})),
              HasSubstr("did you mean attention=cudnn_flash_te?"));
  EXPECT_TRUE(load({"attention=cudnn_flash_te"}).ok());
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
  const auto same = load({"model_name=llama2-7b", "base_emb_dim=4096"});
  ASSERT_TRUE(same.ok()) << same.status();
  EXPECT_EQ(same->settings.at("base_emb_dim").origin, "command line");
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

TEST_F(ConfigTest, ACopyWithoutModelsNamesTheirFolder) {
  std::filesystem::copy(shipped(), folder_ / "base.yml");
  EXPECT_THAT(
      error_of(load({"model_name=llama2-tiny"}, {}, folder_ / "base.yml")),
      AllOf(HasSubstr("no models in " + temp_.file("models")), HasSubstr("base_config: base.yml")));
}

TEST_F(ConfigTest, RestrictedValuesNameTheAllowedOnes) {
  EXPECT_THAT(error_of(load({"weight_dtype=float16"})),
              HasSubstr("set weight_dtype=float32 or weight_dtype=bfloat16"));
  EXPECT_THAT(error_of(load({"grad_dtype=bfloat16"})), HasSubstr("set grad_dtype=float32"));
  EXPECT_THAT(error_of(load({"matmul_precision=bfloat16_3x"})),
              HasSubstr("set matmul_precision=default or matmul_precision=high"));
  EXPECT_THAT(error_of(load({"hardware=npu"})),
              HasSubstr("set hardware=cpu or hardware=gpu or hardware=auto"));
  EXPECT_THAT(error_of(load({"dataset_type=olmo"})), HasSubstr("dataset_type=tfds"));
  EXPECT_THAT(error_of(load({"mlp_activations=['tanh']"})), HasSubstr("SwiGLU"));
}

TEST_F(ConfigTest, KeysWithoutEffectWarnOnceWithTheReason) {
  const auto config =
      load({"scan_layers=false", "use_iota_embed=true", "enable_multi_tier_checkpointing=true"});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_THAT(config->warnings,
              ElementsAre(HasSubstr("use_iota_embed=true has no effect"),
                          HasSubstr("scan_layers=false has no effect"),
                          HasSubstr("enable_multi_tier_checkpointing=true has no effect")));
  // A file may be a copy of the whole base.yml.
  const std::string copy =
      write("copy.yml", "base_config: " + shipped() + "\nenable_multi_tier_checkpointing: False\n");
  EXPECT_THAT(load({}, {}, copy)->warnings, IsEmpty());
}

}  // namespace
}  // namespace muster::jobspec
