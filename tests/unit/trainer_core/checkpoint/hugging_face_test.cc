// Reading config.json and weights; what the model then computes is tested in train/debug_step_test.cc.
#include "trainer_core/checkpoint/hugging_face.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/unit/mutate.h"
#include "tests/unit/temp_folder.h"

namespace muster::trainer {
namespace {

using testing::HasSubstr;

constexpr const char* kFamilies[] = {"llama_mha", "llama_gqa", "llama_bias_tied",
                                     "mistral",   "gemma",     "gpt2"};

std::string golden(const std::string& family) {
  return std::string(MUSTER_SOURCE_DIR) + "/tests/golden/hugging_face/" + family;
}

class HuggingFace : public testing::Test {
 protected:
  // A copy of a golden folder whose config.json may be changed.
  void copy(const std::string& family) {
    std::filesystem::remove_all(path());
    std::filesystem::copy(golden(family), path());
  }
  std::string path() const { return folder_.path() + "/model"; }
  std::string config_path() const { return path() + "/config.json"; }

  void change(const char* key, const nlohmann::json& value) {
    nlohmann::json config = nlohmann::json::parse(std::ifstream(config_path()));
    config[key] = value;
    std::ofstream(config_path()) << config;
  }
  std::string config_error() const {
    return std::string(read_hugging_face_config(path()).status().message());
  }
  std::string load_error() const {
    const auto config = read_hugging_face_config(path());
    EXPECT_TRUE(config.ok()) << config.status();
    const std::vector<ParamSpec> table = model_params(*config);
    std::vector<float> block(static_cast<size_t>(parameter_count(table)));
    return std::string(
        load_hugging_face(path(), hugging_face_tensors(*config, table), block).message());
  }

  TempFolder folder_;
};

TEST_F(HuggingFace, FamiliesAndTheirSizes) {
  const auto gemma = read_hugging_face_config(golden("gemma"));
  ASSERT_TRUE(gemma.ok()) << gemma.status();
  EXPECT_TRUE(gemma->logits_via_embedding && gemma->scale_embeddings);
  EXPECT_EQ(gemma->norm_gain_offset, 1);
  EXPECT_EQ(gemma->activation, Activation::kGelu);
  const auto llama = read_hugging_face_config(golden("llama_gqa"));
  ASSERT_TRUE(llama.ok()) << llama.status();
  EXPECT_EQ(llama->rope_scaling, (RopeScaling{8, 1, 4, 16}));
  EXPECT_EQ(llama->num_kv_heads, 2);
  const auto mistral = read_hugging_face_config(golden("mistral"));
  ASSERT_TRUE(mistral.ok()) << mistral.status();
  EXPECT_EQ(mistral->sliding_window_size, 5);
  const auto gpt2 = read_hugging_face_config(golden("gpt2"));
  ASSERT_TRUE(gpt2.ok()) << gpt2.status();
  EXPECT_EQ(gpt2->mlp_dim, 64);  // n_inner is null
  EXPECT_EQ(gpt2->norm_type, NormType::kLayer);
}

// Every number of our block comes from exactly one of theirs.
TEST_F(HuggingFace, TensorsCoverTheBlock) {
  for (const char* family : kFamilies) {
    const auto config = read_hugging_face_config(golden(family));
    ASSERT_TRUE(config.ok()) << config.status();
    const std::vector<ParamSpec> table = model_params(*config);
    int64_t offset = 0;
    for (const HuggingFaceTensor& tensor : hugging_face_tensors(*config, table)) {
      EXPECT_EQ(tensor.offset, offset) << family << ' ' << tensor.name;
      offset += tensor.elements();
    }
    EXPECT_EQ(offset, parameter_count(table)) << family;
  }
}

TEST_F(HuggingFace, GoesBackToTheirLayout) {
  copy("gpt2");
  const auto config = read_hugging_face_config(path());
  ASSERT_TRUE(config.ok()) << config.status();
  const std::vector<ParamSpec> table = model_params(*config);
  std::vector<float> block(static_cast<size_t>(parameter_count(table)));
  const auto tensors = hugging_face_tensors(*config, table);
  ASSERT_TRUE(load_hugging_face(path(), tensors, block).ok());
  for (const HuggingFaceTensor& tensor : tensors) {
    if (tensor.name != "transformer.h.1.attn.c_attn.weight") continue;
    const std::vector<float> theirs = in_their_layout(tensor, block);
    EXPECT_EQ(tensor.shape, (std::vector<int64_t>{16, 48}));
    // Row i of theirs is column i of ours.
    const auto ours = static_cast<size_t>(tensor.offset);
    EXPECT_EQ(theirs[1 * 48 + 5], block[ours + 5 * 16 + 1]);
    return;
  }
  FAIL() << "no c_attn";
}

TEST_F(HuggingFace, RefusesWhatItCannotRun) {
  copy("llama_gqa");
  change("model_type", "mamba");
  EXPECT_THAT(config_error(), HasSubstr("model_type is \"mamba\"; this trainer runs \"llama\""));
  copy("llama_gqa");
  change("hidden_act", "relu");
  EXPECT_THAT(config_error(), HasSubstr("hidden_act is \"relu\"; this trainer runs \"silu\""));
  copy("llama_gqa");
  change("rope_scaling", {{"type", "linear"}, {"factor", 2.0}});
  EXPECT_THAT(config_error(), HasSubstr("rope_scaling: type is \"linear\""));
  copy("llama_gqa");
  change("num_key_value_heads", 3);
  EXPECT_THAT(config_error(), HasSubstr("base_num_kv_heads (3) must divide"));
  copy("llama_gqa");
  change("vocab_size", -1);
  EXPECT_THAT(config_error(), HasSubstr("vocab_size is -1, but must be a positive"));
  copy("llama_gqa");
  change("hidden_size", nullptr);
  EXPECT_THAT(config_error(), HasSubstr("hidden_size is missing"));
  copy("gpt2");
  change("n_head", 3);
  EXPECT_THAT(config_error(), HasSubstr("n_embd is 16, which n_head (3) does not divide"));
  std::ofstream(config_path()) << "[1, 2";
  EXPECT_THAT(config_error(), HasSubstr("is not JSON"));
}

TEST_F(HuggingFace, NamesTheTensorThatDoesNotFit) {
  copy("llama_gqa");
  change("intermediate_size", 24);
  EXPECT_THAT(load_error(), HasSubstr("model.layers.0.mlp.gate_proj.weight has the shape [28, 16], "
                                      "and config.json asks for [24, 16]"));
  copy("llama_gqa");
  change("num_hidden_layers", 3);
  EXPECT_THAT(load_error(), HasSubstr("there is no tensor model.layers.2.input_layernorm.weight"));
  copy("mistral");
  std::filesystem::remove(path() + "/model-00002-of-00002.safetensors");
  EXPECT_THAT(load_error(), HasSubstr("model-00002-of-00002.safetensors"));
  std::ofstream(path() + "/model.safetensors.index.json")
      << R"({"weight_map": {"model.norm.weight": "../secret.safetensors"}})";
  EXPECT_THAT(load_error(), HasSubstr("has no weight_map of tensor names to file names"));
}

// Whatever config.json says: a model or an error that names the file.
TEST_F(HuggingFace, SurvivesMutatedConfigs) {
  for (const char* family : kFamilies) {
    copy(family);
    std::ifstream file(config_path());
    const std::string text((std::istreambuf_iterator<char>(file)), {});
    Mutator mutator(7);
    for (int i = 0; i < 200; ++i) {
      std::ofstream(config_path(), std::ios::trunc) << mutator.mutate(text);
      const auto config = read_hugging_face_config(path());
      if (!config.ok()) {
        EXPECT_THAT(std::string(config.status().message()), HasSubstr("config.json"));
      }
    }
  }
}

}  // namespace
}  // namespace muster::trainer
