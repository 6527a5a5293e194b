// Adapters in PEFT's format. tests/unit/trainer_core/loop/adapter_golden_test.cc compares what they
// compute with PEFT.
#include "trainer_core/checkpoint/foreign/peft_folder.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/paths.h"
#include "tests/unit/mutate.h"
#include "tests/unit/temp_folder.h"
#include "tests/unit/trainer_core/hugging_face_goldens.h"
#include "trainer_core/checkpoint/adapters.h"

namespace muster::trainer {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class PeftFolder : public testing::Test {
 protected:
  PeftFolder() { copy("llama_gqa"); }

  // Copies a golden folder whose adapter_config.json a test may change.
  void copy(const std::string& name) {
    std::filesystem::remove_all(path());
    std::filesystem::copy(source_dir() + "/tests/golden/lora/" + name, path());
    change("base_model_name_or_path", hugging_face_golden(name));
  }
  std::string path() const { return folder_.path() + "/adapter"; }
  std::string config_path() const { return path() + "/adapter_config.json"; }
  void change(const char* key, const nlohmann::json& value) {
    nlohmann::json config = nlohmann::json::parse(std::ifstream(config_path()));
    config[key] = value;
    std::ofstream(config_path()) << config;
  }
  std::string error() const { return std::string(open_merged(path()).status().message()); }

  TempFolder folder_;
};

TEST_F(PeftFolder, WritesWhatItReads) {
  for (const PositionType type : {PositionType::kRope, PositionType::kRopeInterleaved}) {
    copy("llama_gqa");
    const auto parts = open_with_base(path());
    ASSERT_TRUE(parts.ok()) << parts.status();
    ModelConfig base = base_of(parts->adapters.model);
    base.position_type = type;
    const auto adapters = read_peft_folder(path(), base);
    ASSERT_TRUE(adapters.ok()) << adapters.status();
    EXPECT_EQ(adapters->values == parts->adapters.values, type == PositionType::kRope);
    EXPECT_EQ(adapters->model.lora.rank, 3);
    EXPECT_EQ(adapters->model.lora.scale(), 2);
    EXPECT_EQ(adapters->model.lora.targets.size(), 7U);
    const std::string to = folder_.path() + "/written";
    std::filesystem::remove_all(to);
    std::filesystem::create_directory(to);
    ASSERT_TRUE(write_peft_folder(*adapters, "base", to).ok());
    const auto again = read_peft_folder(to, base);
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(again->values, adapters->values);
    EXPECT_EQ(again->model, adapters->model);
    EXPECT_EQ(again->base, "base");
  }
}

TEST_F(PeftFolder, RefusesOtherKindsOfAdapters) {
  change("use_dora", true);
  EXPECT_THAT(error(), HasSubstr("use_dora is true: magnitudes beside the adapters (DoRA)"));
  copy("llama_gqa");
  change("peft_type", "IA3");
  EXPECT_THAT(error(), HasSubstr("peft_type is \"IA3\""));
  copy("llama_gqa");
  change("rank_pattern", {{"q_proj", 4}});
  EXPECT_THAT(error(), HasSubstr("rank_pattern is {\"q_proj\":4}"));
  copy("llama_gqa");
  change("r", "many");
  EXPECT_THAT(error(), HasSubstr("r is string"));
  copy("llama_gqa");
  change("r", 64);
  EXPECT_THAT(error(), HasSubstr("lora_rank is 64, but q_proj is a matrix of 32 x 16: it must be "
                                 "at most 16"));
  copy("llama_gqa");
  change("r", 0);
  EXPECT_THAT(error(), HasSubstr("r is 0, but must be at least 1"));
  for (const char* field : {"use_qalora", "use_bdlora"}) {
    copy("llama_gqa");
    change(field, true);
    EXPECT_THAT(error(), HasSubstr(std::string(field) + " is true: "));
  }
  copy("llama_gqa");
  change("alora_invocation_tokens", {5, 6});
  EXPECT_THAT(error(), HasSubstr("alora_invocation_tokens is [5,6]: adapters from a token on"));
}

// Some initializations change the weights of the base.
TEST_F(PeftFolder, RefusesAdaptersOfAChangedBase) {
  for (const char* init : {"pissa", "pissa_niter_16", "olora", "corda", "loftq"}) {
    change("init_lora_weights", init);
    EXPECT_THAT(error(), HasSubstr("init_lora_weights is \"" + std::string(init) + "\""));
  }
  for (const nlohmann::json& init :
       {nlohmann::json(true), nlohmann::json(false), nlohmann::json("gaussian"),
        nlohmann::json("orthogonal"), nlohmann::json("eva")}) {
    change("init_lora_weights", init);
    EXPECT_EQ(error(), "") << init;
  }
}

TEST_F(PeftFolder, IsTheFolderOfTheMergedModel) {
  const auto merged = open_merged(path());
  ASSERT_TRUE(merged.ok()) << merged.status();
  EXPECT_EQ((*merged)->description().folder, path());
  EXPECT_EQ((*merged)->description().checksum, "");
  EXPECT_EQ((*merged)->description().tokenizer_folder, hugging_face_golden("llama_gqa"));
}

// The scale of rsLoRA is alpha / sqrt(rank).
TEST_F(PeftFolder, ReadsTheScaleOfRsLora) {
  change("use_rslora", true);
  change("r", 3);
  const auto parts = open_with_base(path());
  ASSERT_TRUE(parts.ok()) << parts.status();
  EXPECT_NEAR(parts->adapters.model.lora.scale(), 6 / std::sqrt(3), 1e-12);
}

TEST_F(PeftFolder, NamesTheFirstTensorOfAnotherBase) {
  change("base_model_name_or_path", hugging_face_golden("llama_mha"));
  EXPECT_THAT(error(), AllOf(HasSubstr("has adapters of another base: tensor "),
                             HasSubstr("layers.0.self_attn.k_proj.lora_B.weight has the shape "
                                       "[16, 3], and this base requires [32, 3]")));
  change("base_model_name_or_path", hugging_face_golden("gpt2"));
  EXPECT_THAT(error(), HasSubstr("lora_targets has gate_proj, but the model's MLP has no gate"));
  change("base_model_name_or_path", "");
  EXPECT_THAT(error(), HasSubstr("has no base_model_name_or_path: name the folder of the base with"
                                 " --base"));
  EXPECT_TRUE(open_merged(path(), hugging_face_golden("llama_gqa")).ok());
}

TEST_F(PeftFolder, NamesTheNearestProjection) {
  const std::string weights = path() + "/adapter_model.safetensors";
  std::ifstream file(weights, std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(file)), {});
  file.close();
  for (size_t at = 0; (at = bytes.find("q_proj", at)) != std::string::npos;)
    bytes.replace(at, 6, "q_prof");
  std::ofstream(weights, std::ios::binary) << bytes;
  EXPECT_THAT(error(), HasSubstr("q_prof.lora_A.weight is of no projection that can have an "
                                 "adapter; the nearest is q_proj"));
}

// Any adapter_config.json yields adapters or an error.
TEST_F(PeftFolder, SurvivesMutatedConfigs) {
  std::ifstream file(config_path());
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  Mutator mutator(3);
  for (int i = 0; i < 300; ++i) {
    std::ofstream(config_path(), std::ios::trunc) << mutator.mutate(text);
    const auto source = open_merged(path());
    if (!source.ok()) {
      EXPECT_NE(std::string(source.status().message()), "");
    }
  }
}

}  // namespace
}  // namespace muster::trainer
