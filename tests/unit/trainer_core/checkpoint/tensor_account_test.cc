// Every tensor of a foreign model's files is used, known not to matter, or an error.
#include "trainer_core/checkpoint/tensor_account.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <random>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/paths.h"
#include "tests/unit/temp_folder.h"
#include "tests/unit/trainer_core/hugging_face_goldens.h"
#include "trainer_core/checkpoint/parameter_source.h"
#include "trainer_core/checkpoint/safetensors.h"

namespace muster::trainer {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

struct Values {
  std::vector<int64_t> shape;
  std::vector<float> values;
};
using Tensors = std::map<std::string, Values>;

Values filled(std::vector<int64_t> shape, float value) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return {std::move(shape), std::vector<float>(static_cast<size_t>(count), value)};
}

class TensorAccounts : public testing::Test {
 protected:
  // Copies a golden folder and returns its tensors.
  Tensors copy(const std::string& family) {
    fs::remove_all(path());
    fs::copy(hugging_face_golden(family), path());
    Tensors tensors;
    for (const auto& entry : fs::directory_iterator(path())) {
      if (entry.path().extension() != ".safetensors" || entry.path().stem() == "step") continue;
      const auto file = SafetensorsFile::open(entry.path());
      EXPECT_TRUE(file.ok()) << file.status();
      for (const auto& [name, stored] : (*file)->tensors()) {
        Values read{stored.shape, std::vector<float>(stored.elements)};
        EXPECT_TRUE((*file)->read(stored, read.values).ok());
        tensors[name] = std::move(read);
      }
    }
    return tensors;
  }

  void write(const std::string& name, const Tensors& tensors) {
    std::vector<TensorToWrite> list;
    for (const auto& [tensor, content] : tensors)
      list.push_back({tensor, content.shape, content.values.data()});
    fs::remove(path() + "/" + name);
    const auto written = write_safetensors(path() + "/" + name, list);
    ASSERT_TRUE(written.ok()) << written.status();
  }
  // Writes all tensors into the single file, which goes before an index.
  void write_all(const Tensors& tensors) { write("model.safetensors", tensors); }

  void change(const char* key, const nlohmann::json& value) {
    nlohmann::json config = nlohmann::json::parse(std::ifstream(path() + "/config.json"));
    config[key] = value;
    std::ofstream(path() + "/config.json") << config;
  }

  std::string path() const { return folder_.path() + "/model"; }
  std::string error() const {
    const auto source = open_hugging_face(path());
    return source.ok() ? "" : std::string(source.status().message());
  }

  TempFolder folder_;
};

// Each member of the kind: tensors that the config does not need, and the setting that would.
TEST_F(TensorAccounts, NamesUnusedTensorsAndTheSettingThatUsesThem) {
  struct Case {
    const char* family;
    Tensors extra;
    std::vector<const char*> expected;
  };
  const Values vector = filled({16}, 0.5F);
  const std::vector<Case> cases = {
      {"llama_gqa",
       {{"model.layers.0.self_attn.q_proj.bias", filled({32}, 1)},
        {"model.layers.0.self_attn.k_proj.bias", filled({16}, 1)},
        {"model.layers.0.self_attn.v_proj.bias", filled({16}, 1)},
        {"model.layers.0.self_attn.o_proj.bias", vector}},
       {"4 of ", "model.layers.0.self_attn.k_proj.bias (F32 [16])", "and 1 more",
        "\"attention_bias\": true would use 4 of them", "--allow-unused"}},
      {"llama_gqa",
       {{"model.layers.2.input_layernorm.weight", vector},
        {"model.layers.3.input_layernorm.weight", vector}},
       {"2 of ", "\"num_hidden_layers\": 4 would use 2 of them"}},
      {"llama_bias_tied",
       {{"lm_head.weight", filled({37, 16}, 2)}},
       {"1 of ", "lm_head.weight (F32 [37, 16], it differs from the embeddings",
        "\"tie_word_embeddings\": false would use 1 of them"}},
      {"gpt2",
       {{"lm_head.weight", filled({31, 16}, 2)}},
       {"it differs from the embeddings", "\"tie_word_embeddings\": false"}},
      {"llama_gqa",
       {{"model.layers.1.mlp.up_proj.bias", filled({28}, 1)}},
       {"\"mlp_bias\": true would use 1 of them"}},
      {"mixtral",
       {{"model.layers.0.block_sparse_moe.experts.4.w1.weight", vector}},
       {"\"num_local_experts\": 5 would use 1 of them"}},
      {"gpt2", {{"transformer.h.2.ln_1.weight", vector}}, {"\"n_layer\": 3 would use 1"}},
      // Qwen's biases without one of the output: no setting of a Llama.
      {"llama_gqa",
       {{"model.layers.0.self_attn.q_proj.bias", filled({32}, 1)}},
       {"no setting of this family uses them"}},
      {"mistral",
       {{"model.layers.0.self_attn.q_norm.weight", filled({8}, 1)}},
       {"no setting of this family uses them"}},
      {"gemma", {{"score.weight", filled({2, 16}, 1)}}, {"score.weight (F32 [2, 16])"}},
      // A mask of another shape is a parameter of that name.
      {"gpt2", {{"transformer.h.0.attn.bias", filled({48}, 1)}}, {"transformer.h.0.attn.bias"}},
  };
  for (const Case& c : cases) {
    Tensors tensors = copy(c.family);
    for (const auto& [name, values] : c.extra) tensors[name] = values;
    write_all(tensors);
    const std::string message = error();
    for (const char* expected : c.expected) EXPECT_THAT(message, HasSubstr(expected)) << c.family;
    const auto allowed = open_hugging_face(path(), UnusedTensorPolicy::kAllow);
    ASSERT_TRUE(allowed.ok()) << allowed.status();
    EXPECT_EQ((*allowed)->description().tensors.unused.size(), c.extra.size());
    EXPECT_THAT((*allowed)->description().notes,
                testing::Contains(HasSubstr("left out, as --allow-unused permits")));
  }
}

TEST_F(TensorAccounts, IgnoresBuffersThatTheConfigDetermines) {
  struct Case {
    const char* family;
    const char* name;
    Values values;
    const char* reason;
  };
  const std::vector<Case> cases = {
      {"llama_gqa", "model.layers.0.self_attn.rotary_emb.inv_freq", filled({4}, 1),
       "rotary_emb.inv_freq"},
      {"mistral", "model.rotary_emb.inv_freq", filled({4}, 1), "rotary_emb.inv_freq"},
      {"gpt2", "transformer.h.0.attn.bias", filled({1, 1, 24, 24}, 1), "causal mask"},
      {"gpt2", "h.1.attn.bias", filled({1, 1, 24, 24}, 1), "causal mask"},
      {"gpt2", "transformer.h.1.attn.masked_bias", filled({}, -1e4F), "masked scores"},
  };
  for (const Case& c : cases) {
    Tensors tensors = copy(c.family);
    const size_t before = tensors.size();
    tensors[c.name] = c.values;
    write_all(tensors);
    const auto source = open_hugging_face(path());
    ASSERT_TRUE(source.ok()) << source.status();
    const TensorAccount& account = (*source)->description().tensors;
    EXPECT_EQ(account.used, before);
    ASSERT_EQ(account.ignored.size(), 1U) << c.name;
    EXPECT_THAT(account.ignored.begin()->first, HasSubstr(c.reason));
  }
}

TEST_F(TensorAccounts, AnIdenticalTiedHeadIsIgnored) {
  for (const auto& [family, embeddings] : {std::pair{"gemma", "model.embed_tokens.weight"},
                                           {"gpt2", "transformer.wte.weight"},
                                           {"llama_bias_tied", "model.embed_tokens.weight"}}) {
    Tensors tensors = copy(family);
    tensors["lm_head.weight"] = tensors[embeddings];
    write_all(tensors);
    EXPECT_EQ(error(), "") << family;
    tensors["lm_head.weight"].values.back() += 0.25F;
    write_all(tensors);
    EXPECT_THAT(error(), HasSubstr("it differs from the embeddings")) << family;
  }
}

// transformers reads all tensors of the files of an index, listed or not.
TEST_F(TensorAccounts, CountsTensorsThatTheIndexDoesNotList) {
  const Tensors all = copy("llama_gqa");
  fs::remove(path() + "/model.safetensors");
  Tensors first = all;
  first["model.layers.9.mlp.up_proj.weight"] = filled({2}, 1);
  write("model-00001-of-00002.safetensors", first);
  write("model-00002-of-00002.safetensors", {{"model.norm.weight", all.at("model.norm.weight")}});
  nlohmann::json map;
  for (const auto& [name, values] : all) map[name] = "model-00001-of-00002.safetensors";
  map["model.norm.weight"] = "model-00002-of-00002.safetensors";
  write_file(path() + "/model.safetensors.index.json", nlohmann::json{{"weight_map", map}}.dump());
  EXPECT_THAT(error(), HasSubstr("model.layers.9.mlp.up_proj.weight"));
  // A copy that differs is another value of the same tensor.
  first.erase("model.layers.9.mlp.up_proj.weight");
  first["model.norm.weight"].values[0] += 1;
  write("model-00001-of-00002.safetensors", first);
  EXPECT_THAT(error(), HasSubstr("in model-00001-of-00002.safetensors, it differs from that in "
                                 "model-00002-of-00002.safetensors"));
  write("model-00001-of-00002.safetensors", all);
  EXPECT_EQ(error(), "");
  map["model.norm.bias"] = "model-00002-of-00002.safetensors";
  write_file(path() + "/model.safetensors.index.json", nlohmann::json{{"weight_map", map}}.dump());
  EXPECT_THAT(error(), HasSubstr("model.norm.bias is listed in "
                                 "model-00002-of-00002.safetensors, which does not have it"));
}

// A missing tensor is named with what the files have in its place.
TEST_F(TensorAccounts, NamesWhatIsThereInsteadOfAMissingTensor) {
  struct Case {
    const char* family;
    const char* missing;
    const char* instead;
    const char* expected;
  };
  for (const Case& c :
       {Case{"llama_gqa", "lm_head.weight", "", "\"tie_word_embeddings\": true would take the"},
        {"llama_gqa", "model.norm.weight", "module.model.norm.weight",
         "there is module.model.norm"},
        {"gpt2", "transformer.wpe.weight", "base.transformer.wpe.weight", "without the wrapper"},
        {"llama_gqa", "model.layers.0.mlp.up_proj.weight", "model.layers.0.mlp.up_proj.qweight",
         "up_proj.qweight, of a quantized model: take the original one"},
        {"mistral", "model.layers.0.mlp.up_proj.weight", "model.layers.0.mlp.up_proj.weight_packed",
         "of a quantized model"},
        {"llama_gqa", "model.norm.weight", "norm.weight",
         "there is norm.weight: save the model together with its head"},
        {"llama_gqa", "model.norm.weight", "model.language_model.norm.weight",
         "there is model.language_model.norm.weight: take the language model out of this one"},
        {"gpt2", "transformer.wpe.weight", "decoder.wpe.weight",
         "there is decoder.wpe.weight: take the language model"},
        {"llama_gqa", "model.norm.weight", "_orig_mod.model.norm.weight", "without the wrapper"}}) {
    Tensors tensors = copy(c.family);
    tensors.erase(c.missing);
    if (*c.instead != '\0') tensors[c.instead] = filled({2}, 1);
    write_all(tensors);
    EXPECT_THAT(error(), testing::AllOf(HasSubstr(std::string("there is no tensor ") + c.missing),
                                        HasSubstr(c.expected)));
  }
}

// A quantized matrix keeps its name, and its scales or codes stand beside it.
TEST_F(TensorAccounts, NamesQuantizedTensorsByWhatIsBesideThem) {
  const std::string stem = "model.layers.1.self_attn.o_proj";
  for (const std::string ending : {".weight.absmax", ".weight.quant_map", ".weight_scale",
                                   ".weight_scale_inv", ".SCB", ".scales", ".g_idx"}) {
    Tensors tensors = copy("llama_gqa");
    tensors[stem + ending] = filled({2}, 1);
    write_all(tensors);
    EXPECT_THAT(error(),
                testing::AllOf(HasSubstr("tensor " + stem + ".weight has " + stem + ending),
                               HasSubstr("as in a quantized model: take the original")));
  }
}

// safetensors keeps the first of two names of a tensor.
TEST_F(TensorAccounts, AHeadAloneIsTheEmbeddingsThatItIsTiedTo) {
  for (const char* family : {"llama_bias_tied", "gemma"}) {
    Tensors tensors = copy(family);
    ASSERT_FALSE(tensors.contains("lm_head.weight")) << family;
    tensors["lm_head.weight"] = tensors.at("model.embed_tokens.weight");
    tensors.erase("model.embed_tokens.weight");
    write_all(tensors);
    const auto source = open_hugging_face(path());
    ASSERT_TRUE(source.ok()) << family << ": " << source.status();
    EXPECT_TRUE((*source)->description().tensors.unused.empty());
    EXPECT_EQ((*source)->description().tensors.used, tensors.size());
    EXPECT_THAT((*source)->description().notes,
                testing::Contains(HasSubstr("lm_head.weight is used as the embeddings")));
  }
  // Without the tie it is another tensor.
  Tensors tensors = copy("llama_gqa");
  tensors.erase("model.embed_tokens.weight");
  write_all(tensors);
  EXPECT_THAT(error(), HasSubstr("there is no tensor model.embed_tokens.weight"));
}

// A name comes from the file.
TEST_F(TensorAccounts, NamesOfTensorsAreOneLine) {
  Tensors tensors = copy("llama_gqa");
  tensors["a\nmuster: \x1b[31mdone"] = filled({2}, 1);
  tensors["model.layers.9.unknown.weight"] = filled({2}, 1);
  write_all(tensors);
  EXPECT_EQ(error().find_first_of("\n\x1b"), std::string::npos) << error();
  EXPECT_THAT(error(), HasSubstr("no setting of this family uses them"));
}

TEST_F(TensorAccounts, NamesOtherFilesOfWeights) {
  const Tensors all = copy("llama_gqa");
  write("consolidated.safetensors", all);
  const auto source = open_hugging_face(path());
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_THAT((*source)->description().notes,
              testing::Contains(HasSubstr("not read: consolidated.safetensors")));
}

TEST_F(TensorAccounts, MetasFilesAreAccountedFor) {
  const std::string golden = source_dir() + "/tests/golden/meta/llama3";
  const auto whole = ParameterSource::open(golden);
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_EQ((*whole)->description().tensors.used, 2U * 9 + 3);
  fs::copy(golden, path());
  nlohmann::json params = nlohmann::json::parse(std::ifstream(path() + "/params.json"));
  params["n_layers"] = 1;
  std::ofstream(path() + "/params.json") << params;
  const auto fewer = ParameterSource::open(path());
  EXPECT_THAT(std::string(fewer.status().message()),
              HasSubstr("\"n_layers\": 2 would use 18 of them"));
  fs::rename(path() + "/consolidated.01.pth", path() + "/consolidated.02.pth");
  EXPECT_THAT(std::string(ParameterSource::open(path()).status().message()),
              HasSubstr("consolidated.01.pth is missing, and consolidated.02.pth is there"));
}

// Whatever is added to a folder is in the account: nothing is lost.
TEST_F(TensorAccounts, RandomTensorsAreAllAccountedFor) {
  std::mt19937 random(28);
  const std::vector<std::string> parts = {
      "model",    "layers",  "h",           "0",       "1",      "7",       "self_attn",
      "attn",     "mlp",     "bias",        "weight",  "q_proj", "up_proj", "rotary_emb",
      "inv_freq", "lm_head", "masked_bias", "experts", "",       "☃"};
  for (int round = 0; round < 60; ++round) {
    const char* family =
        kHuggingFaceGoldens[static_cast<size_t>(round) % std::size(kHuggingFaceGoldens)];
    Tensors tensors = copy(family);
    const size_t before = tensors.size();
    const size_t more = random() % 6;
    while (tensors.size() < before + more) {
      std::string name = parts[random() % parts.size()];
      for (size_t i = random() % 5; i > 0; --i) name += "." + parts[random() % parts.size()];
      std::vector<int64_t> shape(random() % 3, 1);
      for (int64_t& size : shape) size = 1 + static_cast<int64_t>(random() % 3);
      tensors.emplace(name, filled(shape, 3));
    }
    write_all(tensors);
    const auto source = open_hugging_face(path(), UnusedTensorPolicy::kAllow);
    ASSERT_TRUE(source.ok()) << source.status();
    const TensorAccount& account = (*source)->description().tensors;
    EXPECT_EQ(account.used, before);
    EXPECT_EQ(account.used + account.ignored_count() + account.unused.size(), tensors.size());
    EXPECT_EQ(error().empty(), account.unused.empty());
  }
}

}  // namespace
}  // namespace muster::trainer
