// A folder that no reader takes is named with what to do.
#include "trainer_core/checkpoint/foreign/model_folder.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/unit/temp_folder.h"
#include "tests/unit/trainer_core/hugging_face_goldens.h"
#include "trainer_core/checkpoint/parameter_source.h"

namespace muster::trainer {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr char kPointer[] =
    "version https://git-lfs.github.com/spec/v1\n"
    "oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\n"
    "size 3023\n";

class ModelFolder : public testing::Test {
 protected:
  std::string path() const { return folder_.path() + "/model"; }
  void copy(const std::string& family) {
    fs::remove_all(path());
    fs::copy(hugging_face_golden(family), path());
  }
  void change(const char* key, const nlohmann::json& value) {
    nlohmann::json config = nlohmann::json::parse(std::ifstream(path() + "/config.json"));
    config[key] = value;
    std::ofstream(path() + "/config.json") << config;
  }
  std::string error() const { return error_of(path()); }
  static std::string error_of(const std::string& path) {
    const auto source = ParameterSource::open(path);
    return source.ok() ? "" : std::string(source.status().message());
  }

  TempFolder folder_;
};

TEST_F(ModelFolder, NamesWhatIsThereInsteadOfAModel) {
  struct Case {
    const char* name;
    const char* bytes;
    const char* expected;
  };
  const Case cases[] = {
      {"model.q4.gguf", "GGUF", "llama.cpp's format GGUF, which is not read: take the Hugging"},
      {"pytorch_model.bin", "PK\x03\x04", "PyTorch's pickles, which is not read: save it as"},
      {"pytorch_model-00001-of-00002.bin", "PK", "PyTorch's pickles"},
      {"adapter_config.json", R"({"base_model_name_or_path": "meta-llama/Llama-2-7b-hf"})",
       "an adapter (LoRA) of \"meta-llama/Llama-2-7b-hf\", not a model, and the folder has no "
       "adapter_model.safetensors"},
      {"model-00001-of-00002.safetensors.incomplete", "", "the download stopped ("},
      {"model.safetensors.aria2", "", "the download stopped ("},
      {"tf_model.h5", "", "TensorFlow's format"},
      {"flax_model.msgpack", "", "Flax's format"},
      {"model.onnx", "", "ONNX"},
      {"llama.nemo", "", "NeMo's archive"},
      {"__0_0.distcp", "", "PyTorch's distributed checkpoint"},
      {"mp_rank_00_model_states.pt", "", "DeepSpeed"},
      {"_CHECKPOINT_METADATA", "{}", "an Orbax checkpoint"},
      {"config.json", "{}", "config.json without weights"},
      {"model.safetensors", "", "without config.json"},
      {"params.json", "{}", "params.json without consolidated.00.pth"},
      {"llama-7b.Q4_K_M.GGUF", "GGUF", "llama.cpp's format GGUF"},
      {"openvino_model.xml", "", "OpenVINO"},
      {"llama.engine", "", "TensorRT"},
      {"model.tflite", "", "TensorFlow Lite"},
      {"weights.npz", "", "NumPy or MLX"},
      {"model.bin", "", "CTranslate2 or PyTorch"},
      {"model.tar.gz", "", "is of an archive, which is not read: unpack it"},
      {"notes.txt", "", "no model is there; it has notes.txt. A run"},
  };
  for (const Case& c : cases) {
    fs::remove_all(path());
    fs::create_directory(path());
    write_file(path() + "/" + c.name, c.bytes);
    EXPECT_THAT(error(), HasSubstr(c.expected)) << c.name;
  }
  fs::remove_all(path());
  fs::create_directories(path() + "/snapshots/0123abcd");
  EXPECT_THAT(error(),
              HasSubstr("name the folder of a revision: " + path() + "/snapshots/0123abcd"));
  fs::remove_all(path());
  fs::create_directories(path());
  EXPECT_THAT(error(), HasSubstr("no model is there; it is empty. A run"));
  fs::copy(hugging_face_golden("llama_gqa"), path() + "/llama");
  EXPECT_THAT(error(), HasSubstr("but a folder with one: name " + path() + "/llama"));
  fs::remove_all(path());
  fs::create_directories(path() + "/.cache/huggingface/download");
  write_file(path() + "/.cache/huggingface/download/x.incomplete", "");
  EXPECT_THAT(error(), HasSubstr("the download stopped ("));
}

TEST_F(ModelFolder, NamesAFileByItsKind) {
  for (const auto& [bytes, expected] : {std::pair{"GGUF\3", "llama.cpp's format"},
                                        {"PK\3\4", "a zip archive, such as PyTorch's"},
                                        {"\x80\2", "a pickle"},
                                        {kPointer, "this is a Git LFS pointer: run git lfs pull"},
                                        {"<!DOCTYPE html><html>", "this is a web page"},
                                        {"", "this file is empty"}}) {
    write_file(folder_.file("file"), bytes);
    EXPECT_THAT(error_of(folder_.file("file")), HasSubstr(expected));
  }
}

TEST_F(ModelFolder, NamesPointersAndBrokenDownloadsInPlaceOfWeights) {
  struct Case {
    std::string bytes;
    const char* expected;
  };
  const Case cases[] = {{kPointer, "this is a Git LFS pointer: run git lfs pull"},
                        {"/annex/objects/SHA256E-s3--ab\n", "this is a git-annex pointer"},
                        {"<html>Access denied</html>", "this is a web page, not the file"},
                        {std::string(5000, '\0'), "begins with zeros only"},
                        {"", "this file is empty"},
                        {"PK\x03\x04zip", "a zip archive"},
                        {"GGUF\x03", "a GGUF file"}};
  for (const Case& c : cases) {
    copy("llama_gqa");
    write_file(path() + "/model.safetensors", c.bytes);
    EXPECT_THAT(error(), HasSubstr(c.expected));
    copy("llama_gqa");
    if (!c.bytes.empty() && c.bytes[0] != '\0') {
      write_file(path() + "/config.json", c.bytes);
      EXPECT_THAT(error(), HasSubstr(c.expected));
    }
    copy("mistral");
    write_file(path() + "/model-00002-of-00002.safetensors", c.bytes);
    EXPECT_THAT(error(), HasSubstr(c.expected));
  }
}

TEST_F(ModelFolder, NamesAConfigThatIsNoJson) {
  copy("llama_gqa");
  const std::string config = read_file(path() + "/config.json");
  write_file(path() + "/config.json", config.substr(0, config.size() / 2));
  EXPECT_THAT(error(),
              HasSubstr("config.json is not JSON; if it was downloaded, download it again"));
  std::string wide = "\xFF\xFE";
  for (const char c : config) wide += {c, '\0'};
  write_file(path() + "/config.json", wide);
  EXPECT_THAT(error(), HasSubstr("config.json is UTF-16, not UTF-8; convert it with iconv"));
}

TEST_F(ModelFolder, NamesMissingShardsAndDanglingLinks) {
  copy("mistral");
  const std::string shard = path() + "/model-00002-of-00002.safetensors";
  fs::remove(shard);
  EXPECT_THAT(error(), HasSubstr("1 of the 2 files of model.safetensors.index.json is missing: "
                                 "model-00002-of-00002.safetensors"));
  fs::create_symlink("../../blobs/0123", shard);
  EXPECT_THAT(error(), HasSubstr("a symbolic link to ../../blobs/0123, which does not exist: a "
                                 "cache of the Hugging Face Hub"));
  fs::remove(shard);
  fs::create_symlink("blob", shard);
  write_file(path() + "/blob.incomplete", "");
  EXPECT_THAT(error(), HasSubstr("its download stopped ("));
  copy("mistral");
  fs::remove(path() + "/model-00001-of-00002.safetensors");
  fs::remove(shard);
  EXPECT_THAT(error(), HasSubstr("2 of the 2 files"));
  copy("llama_gqa");
  fs::remove(path() + "/model.safetensors");
  fs::create_symlink("/nowhere/blobs/12", path() + "/model.safetensors");
  EXPECT_THAT(error(), HasSubstr("model.safetensors: it is a symbolic link to /nowhere/blobs/12"));
  // A file that ends early.
  copy("llama_gqa");
  const std::string bytes = read_file(path() + "/model.safetensors");
  write_file(path() + "/model.safetensors", bytes.substr(0, bytes.size() / 2));
  EXPECT_THAT(error(), HasSubstr("download it again"));
  write_file(path() + "/model.safetensors", bytes.substr(0, 100));
  EXPECT_THAT(error(), HasSubstr("its download is incomplete"));
  fs::create_symlink("gone", folder_.file("link"));
  EXPECT_THAT(error_of(folder_.file("link")), HasSubstr("a symbolic link to gone"));
}

TEST_F(ModelFolder, NamesQuantizedModelsAndVariantsOfRope) {
  struct Case {
    const char* key;
    nlohmann::json value;
    const char* expected;
  };
  const Case cases[] = {
      {"quantization_config",
       {{"quant_method", "gptq"}, {"bits", 4}},
       "quantization_config is there (quant_method \"gptq\", bits 4): this trainer reads models "
       "that are not quantized; take the original"},
      {"quantization_config", {{"quant_method", "fp8"}}, "quant_method \"fp8\""},
      {"rope_scaling",
       {{"type", "linear"}, {"factor", 2.0}},
       "rope_scaling is of the type linear; this trainer runs \"llama3\" and \"default\": convert"},
      {"rope_scaling", {{"rope_type", "yarn"}, {"factor", 4.0}}, "of the type yarn"},
      {"rope_scaling", {{"rope_type", "dynamic"}, {"factor", 4.0}}, "of the type dynamic"},
      {"rope_scaling", {{"type", "longrope"}}, "of the type longrope"},
      {"rope_scaling", {{"rope_type", "default"}, {"type", "mrope"}}, ""},
      {"rope_scaling",
       {{"full_attention", {{"rope_type", "default"}, {"rope_theta", 1e6}}}},
       "rope_scaling is of several kinds of layers (full_attention, …); this trainer runs one"},
      {"partial_rotary_factor", 0.25, "partial_rotary_factor is 0.25"},
      {"rope_interleaved", true, "rope_interleaved is true"},
      {"alibi", true, "alibi is true"},
  };
  for (const Case& c : cases) {
    copy("llama_gqa");
    change(c.key, c.value);
    const std::string problem = error();
    EXPECT_THAT(problem, HasSubstr(c.expected)) << c.key;
    EXPECT_EQ(problem.empty(), std::string(c.expected).empty()) << problem;
  }
}

// A name states one format, and the bytes have another.
TEST_F(ModelFolder, NamesFilesByTheirContentBeforeTheirName) {
  struct Case {
    const char* name;
    std::string bytes;
    const char* expected;
  };
  const Case cases[] = {
      {"pytorch_model.bin", "GGUF\3", "pytorch_model.bin: this is a GGUF file"},
      {"pytorch_model.bin", kPointer, "pytorch_model.bin: this is a Git LFS pointer"},
      {"pytorch_model.bin", std::string(2000, '\0'), "begins with zeros only"},
      {"pytorch_model.bin", "<!DOCTYPE html>", "this is a web page"},
      {"tf_model.h5", kPointer, "tf_model.h5: this is a Git LFS pointer"},
      {"model.q4.gguf", kPointer, "model.q4.gguf: this is a Git LFS pointer"},
      {"pytorch_model.bin", "\x80\2}q", "PyTorch's pickles, which is not read"},
  };
  for (const Case& c : cases) {
    fs::remove_all(path());
    fs::create_directory(path());
    write_file(path() + "/" + c.name, c.bytes);
    EXPECT_THAT(error(), HasSubstr(c.expected)) << c.name;
  }
}

TEST_F(ModelFolder, NamesTextsInPlaceOfWeights) {
  copy("llama_gqa");
  for (const auto& [bytes, expected] :
       {std::pair{"Access to this model is restricted.\n",
                  "; it is a text: \"Access to this model"},
        {"{\"error\": \"not found\"}", "; it is a text: \"{\\\"error"},
        {"404: Not Found", "; it is a text: \"404: Not Found\""}}) {
    write_file(path() + "/model.safetensors", bytes);
    EXPECT_THAT(error(), HasSubstr(std::string(expected).substr(0, 18))) << bytes;
  }
}

TEST_F(ModelFolder, NotesUnreadFieldsOfRope) {
  copy("llama_gqa");
  nlohmann::json config = nlohmann::json::parse(std::ifstream(path() + "/config.json"));
  nlohmann::json rope = config["rope_scaling"];
  rope["type"] = "llama3";
  change("rope_scaling", rope);
  EXPECT_THAT(read_hugging_face_config(path())->notes, testing::IsEmpty());
  rope["attention_factor"] = 1.5;
  change("rope_scaling", rope);
  EXPECT_THAT(
      read_hugging_face_config(path())->notes,
      testing::ElementsAre(HasSubstr("rope_scaling: not read, because RoPE of this type has "
                                     "no such field: \"attention_factor\": 1.5")));
}

TEST_F(ModelFolder, NotesUnusedFields) {
  for (const char* family : kHuggingFaceGoldens) {
    copy(family);
    EXPECT_THAT(read_hugging_face_config(path())->notes, testing::IsEmpty()) << family;
  }
  copy("llama_gqa");
  change("logits_scaling", 8.0);
  change("use_qk_norm", false);
  change("torch_dtype", "bfloat16");
  EXPECT_THAT(read_hugging_face_config(path())->notes,
              testing::ElementsAre(HasSubstr("1 field is not read, because a llama has no such "
                                             "field: \"logits_scaling\": 8.0")));
}

// transformers' rule: hidden_activation, and without it the tanh approximation.
TEST_F(ModelFolder, GemmasActivation) {
  struct Case {
    nlohmann::json old_name;
    nlohmann::json new_name;
    Activation activation;
    const char* note;
  };
  const Case cases[] = {
      {"gelu", nullptr, Activation::kGelu, "hidden_act of Gemma is \"gelu\", which means"},
      {"gelu", "gelu_pytorch_tanh", Activation::kGelu, "hidden_activation (gelu_pytorch_tanh) is"},
      {"gelu_pytorch_tanh", nullptr, Activation::kGelu, nullptr},
      {"gelu_pytorch_tanh", "gelu_pytorch_tanh", Activation::kGelu, nullptr},
      {nullptr, "gelu_pytorch_tanh", Activation::kGelu, nullptr},
      {nullptr, nullptr, Activation::kGelu, nullptr},
      {"gelu", "silu", Activation::kSilu,
       "hidden_activation (silu) is used, not hidden_act (gelu)"},
  };
  for (const Case& c : cases) {
    copy("gemma");
    change("hidden_act", c.old_name);
    change("hidden_activation", c.new_name);
    const auto config = read_hugging_face_config(path());
    ASSERT_TRUE(config.ok()) << config.status();
    EXPECT_EQ(config->model.activation, c.activation);
    if (c.note == nullptr) {
      EXPECT_THAT(config->notes, testing::IsEmpty());
    } else {
      EXPECT_THAT(config->notes, testing::ElementsAre(HasSubstr(c.note)));
    }
  }
  copy("gemma");
  change("hidden_act", "silu");
  EXPECT_THAT(error(), HasSubstr("hidden_act is \"silu\""));
  copy("gemma");
  change("hidden_activation", "gelu");
  EXPECT_THAT(error(), HasSubstr("hidden_activation is \"gelu\""));
}

}  // namespace
}  // namespace muster::trainer
