// Reading config.json and weights; what the model then computes is tested in
// train/debug_step_test.cc.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/unit/mutate.h"
#include "tests/unit/temp_folder.h"
#include "tests/unit/trainer_core/hugging_face_goldens.h"
#include "tests/unit/trainer_core/model/sharded_models.h"
#include "trainer_core/checkpoint/parameter_source.h"
#include "trainer_core/checkpoint/safetensors.h"
#include "trainer_core/model/shard_layout.h"

namespace muster::trainer {
namespace {

using testing::HasSubstr;

class HuggingFace : public testing::Test {
 protected:
  // Copies a golden folder whose config.json a test may change.
  void copy(const std::string& family) {
    std::filesystem::remove_all(path());
    std::filesystem::copy(hugging_face_golden(family), path());
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
    const auto source = open_hugging_face(path());
    if (!source.ok()) return std::string(source.status().message());
    std::vector<float> block(static_cast<size_t>((*source)->parameters()));
    return std::string(load_parameters(**source, block).message());
  }

  TempFolder folder_;
};

TEST_F(HuggingFace, FamiliesAndTheirSizes) {
  const auto gemma = read_hugging_face_config(hugging_face_golden("gemma"));
  ASSERT_TRUE(gemma.ok()) << gemma.status();
  EXPECT_TRUE(gemma->model.logits_via_embedding && gemma->model.scale_embeddings);
  EXPECT_EQ(gemma->model.norm_gain_offset, 1);
  EXPECT_EQ(gemma->model.activation, Activation::kGelu);
  const auto llama = read_hugging_face_config(hugging_face_golden("llama_gqa"));
  ASSERT_TRUE(llama.ok()) << llama.status();
  EXPECT_EQ(llama->model.rope_scaling, (RopeScaling{8, 1, 4, 16}));
  EXPECT_EQ(llama->model.num_kv_heads, 2);
  const auto mistral = read_hugging_face_config(hugging_face_golden("mistral"));
  ASSERT_TRUE(mistral.ok()) << mistral.status();
  EXPECT_EQ(mistral->model.sliding_window_size, 5);
  const auto gpt2 = read_hugging_face_config(hugging_face_golden("gpt2"));
  ASSERT_TRUE(gpt2.ok()) << gpt2.status();
  EXPECT_EQ(gpt2->model.mlp_dim, 64);  // n_inner is null
  EXPECT_EQ(gpt2->model.norm_type, NormType::kLayer);
}

// Every number of our block comes from exactly one of theirs.
TEST_F(HuggingFace, TensorsCoverTheBlock) {
  for (const char* family : kHuggingFaceGoldens) {
    const auto config = read_hugging_face_config(hugging_face_golden(family));
    ASSERT_TRUE(config.ok()) << config.status();
    const std::vector<ParamSpec> table = model_params(config->model);
    int64_t offset = 0;
    for (const HuggingFaceTensor& tensor : hugging_face_tensors(config->model, table)) {
      EXPECT_EQ(tensor.offset, offset) << family << ' ' << tensor.name;
      offset += tensor.elements();
    }
    EXPECT_EQ(offset, parameter_count(table)) << family;
  }
}

TEST_F(HuggingFace, ConvertsBackToTheirLayout) {
  copy("gpt2");
  const auto config = read_hugging_face_config(path());
  ASSERT_TRUE(config.ok()) << config.status();
  const std::vector<ParamSpec> table = model_params(config->model);
  std::vector<float> block(static_cast<size_t>(parameter_count(table)));
  const auto source = open_hugging_face(path());
  ASSERT_TRUE(source.ok() && load_parameters(**source, block).ok());
  const auto tensors = hugging_face_tensors(config->model, table);
  for (const HuggingFaceTensor& tensor : tensors) {
    if (tensor.name != "transformer.h.1.attn.c_attn.weight") continue;
    const std::vector<float> theirs =
        in_their_layout(tensor, tensor.part_of(std::span<const float>(block)));
    EXPECT_EQ(tensor.shape, (std::vector<int64_t>{16, 48}));
    // Row i of theirs is column i of ours.
    const auto ours = static_cast<size_t>(tensor.offset);
    EXPECT_EQ(theirs[1 * 48 + 5], block[ours + 5 * 16 + 1]);
    return;
  }
  FAIL() << "no c_attn";
}

// Ranks that read what they store have the model together, whichever of its tensors are stored as
// one or transposed.
TEST_F(HuggingFace, ARankReadsItsShards) {
  for (const char* family : kHuggingFaceGoldens) {
    const auto source = open_hugging_face(hugging_face_golden(family));
    ASSERT_TRUE(source.ok()) << source.status();
    const ModelConfig& model = (*source)->description().model;
    const std::vector<ParamSpec> table = model_params(model);
    std::vector<float> whole(static_cast<size_t>(parameter_count(table))), together(whole.size());
    ASSERT_TRUE(load_parameters(**source, whole).ok());
    const Mesh mesh = mesh_with({1, 1, 3, 1, 1, 1, 2});
    if (!allows(model, mesh)) continue;
    for (int32_t rank = 0; rank < mesh.ranks(); ++rank) {
      const ShardLayout layout = ShardLayout::of(model, mesh, rank, DType::kF32);
      std::vector<float> block(static_cast<size_t>(layout.elements()));
      const auto status = (*source)->read_boxes(layout.stored_boxes(), block);
      ASSERT_TRUE(status.ok()) << status;
      for (const ShardPiece& piece : layout.pieces()) {
        const ParamSpec& spec = table[piece.param];
        for (const TensorBox& box : layout.boxes(piece)) {
          const CommonRuns runs(box, whole_box(spec));
          for (int64_t i = 0; i < runs.count(); ++i)
            std::copy_n(block.begin() + box.offset + runs.at(i).from, runs.length(),
                        together.begin() + spec.offset + runs.at(i).to);
        }
      }
    }
    EXPECT_EQ(together, whole) << family;
  }
}

TEST_F(HuggingFace, ReadsEveryActivation) {
  for (const ActivationRow& row : kActivationRows) {
    for (const std::string_view value : row.hugging_face) {
      if (value.empty()) continue;
      copy("llama_gqa");
      change("hidden_act", value);
      EXPECT_EQ(read_hugging_face_config(path())->model.activation, row.activation) << value;
      copy("mixtral");
      change("hidden_act", value);
      EXPECT_EQ(read_hugging_face_config(path())->model.experts.activation, row.activation);
      copy("gpt2");
      change("activation_function", value);
      EXPECT_EQ(read_hugging_face_config(path())->model.activation, row.activation) << value;
    }
  }
}

TEST_F(HuggingFace, RefusesUnsupportedModels) {
  copy("llama_gqa");
  change("model_type", "mamba");
  EXPECT_THAT(config_error(), HasSubstr("model_type is \"mamba\"; this trainer runs \"llama\""));
  copy("llama_gqa");
  change("hidden_act", "tanh");
  EXPECT_THAT(config_error(),
              HasSubstr("hidden_act is \"tanh\"; this trainer runs \"silu\" or \"swish\" or"));
  copy("llama_gqa");
  change("rope_scaling", {{"type", "linear"}, {"factor", 2.0}});
  EXPECT_THAT(config_error(), HasSubstr("rope_scaling is of the type linear"));
  copy("llama_gqa");
  change("num_key_value_heads", 3);
  EXPECT_THAT(config_error(),
              HasSubstr("num_key_value_heads is 3, which does not divide num_attention_heads (4)"));
  copy("llama_gqa");
  change("vocab_size", -1);
  EXPECT_THAT(config_error(), HasSubstr("vocab_size is -1, but must be a positive"));
  copy("llama_gqa");
  change("hidden_size", nullptr);
  EXPECT_THAT(config_error(), HasSubstr("hidden_size is missing"));
  copy("gpt2");
  change("n_head", 3);
  EXPECT_THAT(config_error(), HasSubstr("n_embd is 16, which n_head (3) does not divide"));
  copy("llama_gqa");
  change("rms_norm_eps", 0);
  EXPECT_THAT(config_error(), HasSubstr("rms_norm_eps is 0, but must be a number of at least"));
  copy("gemma");
  change("hidden_act", "relu");
  EXPECT_THAT(config_error(), HasSubstr("this trainer runs \"gelu_pytorch_tanh\""));
  copy("llama_gqa");
  for (const char* size : {"hidden_size", "num_attention_heads", "head_dim"}) change(size, 1 << 24);
  EXPECT_THAT(config_error(), HasSubstr("parameters, but must have at most"));
  copy("llama_gqa");
  change("vocab_size", std::string(200'000, '9'));
  EXPECT_LT(config_error().size(), 1000U);
  std::ofstream(config_path()) << R"({"vocab_size": )" << std::string(200'000, '[')
                               << std::string(200'000, ']') << "}";
  EXPECT_THAT(config_error(), HasSubstr("nests values more than"));
  std::ofstream(config_path()) << "[1, 2";
  EXPECT_THAT(config_error(), HasSubstr("is not JSON"));
}

// transformers 5 has RoPE's values in a separate group.
TEST_F(HuggingFace, RopeParametersAreRopeScalingAndTheta) {
  copy("llama_gqa");
  const auto before = read_hugging_face_config(path());
  ASSERT_TRUE(before.ok()) << before.status();
  nlohmann::json config = nlohmann::json::parse(std::ifstream(config_path()));
  nlohmann::json group = config["rope_scaling"];
  group["rope_theta"] = config["rope_theta"];
  change("rope_parameters", group);
  EXPECT_THAT(config_error(), HasSubstr("rope_parameters is there beside rope_scaling"));
  change("rope_scaling", nullptr);
  change("rope_theta", nullptr);
  const auto after = read_hugging_face_config(path());
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_EQ(before->model, after->model);
}

TEST_F(HuggingFace, RopeScalingMustBeComplete) {
  const auto error_with = [this](const nlohmann::json& scaling) {
    copy("llama_gqa");
    change("rope_scaling", scaling);
    return config_error();
  };
  EXPECT_THAT(error_with("linear"), HasSubstr("rope_scaling is \"linear\", but must be an object"));
  EXPECT_THAT(error_with({{"factor", 2.0}}), HasSubstr("rope_scaling: rope_type is missing"));
  EXPECT_THAT(error_with({{"rope_type", "llama3"}}), HasSubstr("rope_scaling: factor is missing"));
  EXPECT_THAT(error_with({{"rope_type", "default"}, {"partial_rotary_factor", 0.5}}),
              HasSubstr("partial_rotary_factor is 0.5"));
  EXPECT_EQ(error_with({{"rope_type", "default"}, {"factor", 8.0}}), "");
  EXPECT_EQ(read_hugging_face_config(path())->model.rope_scaling, RopeScaling());
}

TEST_F(HuggingFace, DefaultsAreEachFamilysOwn) {
  const auto without = [this](const char* family, const char* key) {
    copy(family);
    nlohmann::json config = nlohmann::json::parse(std::ifstream(config_path()));
    config.erase(key);
    std::ofstream(config_path()) << config;
    auto model = read_hugging_face_config(path());
    EXPECT_TRUE(model.ok()) << model.status();
    return model.ok() ? model->model : ModelConfig();
  };
  EXPECT_EQ(without("mistral", "sliding_window").sliding_window_size, 4096);
  EXPECT_EQ(without("gemma", "head_dim").head_dim, 256);
  EXPECT_EQ(without("llama_gqa", "head_dim").head_dim, 4);
  EXPECT_EQ(without("llama_gqa", "num_key_value_heads").num_kv_heads, 4);
  copy("mistral");
  change("sliding_window", nullptr);
  EXPECT_EQ(read_hugging_face_config(path())->model.sliding_window_size, 0);
}

// A folder may contain buffers of other types, and an index beside the single file.
TEST_F(HuggingFace, ReadsNamesWithoutPrefixAndIgnoresMasks) {
  copy("gpt2");
  const auto file = SafetensorsFile::open(path() + "/model.safetensors");
  ASSERT_TRUE(file.ok());
  nlohmann::json header;
  std::string data;
  for (const auto& [name, entry] : (*file)->tensors()) {
    std::vector<float> numbers(entry.elements);
    ASSERT_TRUE((*file)->read(entry, numbers).ok());
    const size_t begin = data.size();
    data.append(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(float));
    // The first published files have no "transformer." before a name.
    header[name.substr(std::string("transformer.").size())] = {
        {"dtype", "F32"}, {"shape", entry.shape}, {"data_offsets", {begin, data.size()}}};
  }
  header["h.0.attn.bias"] = {
      {"dtype", "BOOL"}, {"shape", {1, 1, 2, 2}}, {"data_offsets", {data.size(), data.size() + 4}}};
  data += "\1\1\1\1";
  const std::string json = header.dump();
  const uint64_t length = json.size();
  std::ofstream(path() + "/model.safetensors", std::ios::binary)
      << std::string(reinterpret_cast<const char*>(&length), sizeof(length)) << json << data;
  std::ofstream(path() + "/model.safetensors.index.json") << "{}";
  EXPECT_EQ(load_error(), "");
}

TEST_F(HuggingFace, NamesTheTensorThatDoesNotFit) {
  copy("llama_gqa");
  change("intermediate_size", 24);
  EXPECT_THAT(load_error(), HasSubstr("model.layers.0.mlp.gate_proj.weight has the shape [28, 16], "
                                      "and config.json requires [24, 16]"));
  copy("llama_gqa");
  change("num_hidden_layers", 3);
  EXPECT_THAT(load_error(), HasSubstr("there is no tensor model.layers.2.input_layernorm.weight"));
  copy("mistral");
  std::filesystem::remove(path() + "/model-00002-of-00002.safetensors");
  EXPECT_THAT(load_error(), HasSubstr("model-00002-of-00002.safetensors"));
  std::ofstream(path() + "/model.safetensors.index.json")
      << R"({"weight_map": {"model.norm.weight": "../secret.safetensors"}})";
  EXPECT_THAT(load_error(),
              HasSubstr("\"../secret.safetensors\" for tensor \"model.norm.weight\""));
}

// Any config.json yields a model or an error that names the file.
TEST_F(HuggingFace, SurvivesMutatedConfigs) {
  for (const char* family : kHuggingFaceGoldens) {
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
