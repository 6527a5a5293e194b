// Tests which models have a Hugging Face architecture. convert/convert_model_test.cc and, with
// transformers, tests/e2e/test_convert.py test that their logits are equal.
#include "trainer_core/checkpoint/foreign/hugging_face_export.h"

#include <gmock/gmock.h>

#include <cmath>
#include <functional>

#include <gtest/gtest.h>

#include "tests/unit/trainer_core/hugging_face_goldens.h"

namespace muster::trainer {
namespace {

using testing::AllOf;
using testing::HasSubstr;

ModelConfig golden_model(const std::string& family) {
  const auto config = read_hugging_face_config(hugging_face_golden(family));
  EXPECT_TRUE(config.ok()) << config.status();
  return config->model;
}

std::string refusal(const std::string& family, const std::function<void(ModelConfig&)>& change) {
  ModelConfig model = golden_model(family);
  change(model);
  const auto exported = export_to_hugging_face(model, 64, nlohmann::json::object());
  EXPECT_FALSE(exported.ok()) << exported->config;
  return std::string(exported.status().message());
}

TEST(HuggingFaceExport, EveryFamilyIsItself) {
  for (const char* family : kHuggingFaceGoldens) {
    const ModelConfig model = golden_model(family);
    const auto exported = export_to_hugging_face(model, 64, nlohmann::json::object());
    ASSERT_TRUE(exported.ok()) << exported.status();
    EXPECT_EQ(exported->config["model_type"], model.name);
    const auto back = parse_hugging_face_config(nlohmann::json::parse(exported->config.dump()));
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(back->model, model) << family;
  }
}

TEST(HuggingFaceExport, EveryActivationIsReadBack) {
  for (const ActivationRow& row : kActivationRows) {
    if (row.hugging_face.front().empty()) continue;
    for (const char* family : {"llama_gqa", "mistral", "mixtral", "gpt2"}) {
      ModelConfig model = golden_model(family);
      model.activation = model.experts.activation = row.activation;
      if (model.experts.count == 1) model.experts = {};
      const auto exported = export_to_hugging_face(model, 64, nlohmann::json::object());
      ASSERT_TRUE(exported.ok()) << family << ": " << exported.status();
      const char* const field = model.name == "gpt2" ? "activation_function" : "hidden_act";
      EXPECT_EQ(exported->config[field], row.hugging_face.front()) << family;
    }
  }
}

TEST(HuggingFaceExport, RefusesUnsupportedModels) {
  EXPECT_THAT(
      refusal("llama_gqa", [](ModelConfig& m) { m.attn_logits_soft_cap = 50; }),
      AllOf(HasSubstr("attn_logits_soft_cap is 50.0"), HasSubstr("LlamaForCausalLM, has 0.0"),
            HasSubstr("Llama, Mistral, Mixtral, Gemma and GPT-2")));
  EXPECT_THAT(refusal("gemma", [](ModelConfig& m) { m.final_logits_soft_cap = 30; }),
              HasSubstr("final_logits_soft_cap is 30.0"));
  EXPECT_THAT(
      refusal("gemma", [](ModelConfig& m) { m.activation = Activation::kRelu; }),
      HasSubstr("activation is \"relu\", and the nearest one, GemmaForCausalLM, has \"gelu\""));
  EXPECT_THAT(refusal("gemma", [](ModelConfig& m) { m.sliding_window_size = 5; }),
              HasSubstr("sliding_window_size is 5"));
  EXPECT_THAT(refusal("gpt2", [](ModelConfig& m) { m.head_dim = 4; }), HasSubstr("head_dim is 4"));
  EXPECT_THAT(refusal("llama_gqa", [](ModelConfig& m) { m.logits_scale = 0.25; }),
              HasSubstr("logits_scale is 0.25"));
  EXPECT_THAT(refusal("mixtral", [](ModelConfig& m) { m.experts.layer_step = 2; }),
              HasSubstr("interleave_moe_layer_step is 2"));
  EXPECT_THAT(refusal("mixtral", [](ModelConfig& m) { m.experts.gated = false; }),
              HasSubstr("gated_experts is false"));
  EXPECT_THAT(refusal("mistral", [](ModelConfig& m) { m.qkv_bias = true; }), HasSubstr("qkv_bias"));
}

// Fields that only training reads do not matter, nor do equivalent spellings.
TEST(HuggingFaceExport, AllowsEquivalentModels) {
  ModelConfig model = golden_model("mixtral");
  model.dropout_rate = 0.1;
  model.z_loss_multiplier = 1e-4;
  model.init_std = 0.02;
  model.experts.capacity_factor = 1.25;
  model.experts.balance_weight = 0.01;
  model.query_scale = 1 / std::sqrt(static_cast<double>(model.head_dim));
  EXPECT_TRUE(export_to_hugging_face(model, 0, nlohmann::json::object()).ok());
}

}  // namespace
}  // namespace muster::trainer
