#include "trainer_core/convert/convert_model.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>

#include <gtest/gtest.h>

#include "tests/unit/temp_folder.h"
#include "tests/unit/trainer_core/hugging_face_goldens.h"
#include "trainer_core/base/bf16.h"
#include "trainer_core/checkpoint/checkpoint.h"
#include "trainer_core/checkpoint/safetensors.h"
#include "trainer_core/model/scaling_state.h"
#include "trainer_core/tools/debug_step.h"

namespace muster::trainer {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

// Returns {name: (shape, stored bytes)} of all safetensors files of a folder.
using Weights = std::map<std::string, std::pair<std::vector<int64_t>, std::string>>;
Weights weights_of(const std::string& folder) {
  Weights weights;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string path = entry.path().string();
    if (entry.path().extension() != ".safetensors" || entry.path().filename() == "step.safetensors")
      continue;
    const auto file = SafetensorsFile::open(path);
    EXPECT_TRUE(file.ok()) << file.status();
    const std::string bytes = read_file(path);
    for (const auto& [name, tensor] : (*file)->tensors()) {
      weights[name] = {tensor.shape,
                       tensor.dtype + bytes.substr(tensor.offset,
                                                   tensor.elements * stored_bytes(tensor.stored))};
    }
  }
  return weights;
}

class Convert : public testing::Test {
 protected:
  absl::StatusOr<ConvertReport> run(const std::string& from, const std::string& to,
                                    std::optional<StoredType> stored = {},
                                    int64_t shard_bytes = 5'000'000'000) {
    ConvertOptions options;
    options.from = from;
    options.to = file(to);
    options.stored = stored;
    options.shard_bytes = shard_bytes;
    options.target = target_;
    options.stop = &stop_;
    return convert(options, nullptr);
  }
  std::string error(const std::string& from, const std::string& to,
                    std::optional<StoredType> stored = {}) {
    return std::string(run(from, to, stored).status().message());
  }
  std::string file(const std::string& name) const { return folder_.file(name); }

  // Writes a checkpoint of a model with random values.
  void make_checkpoint(const std::string& name, const ModelConfig& model,
                       ComputeType weight_dtype = ComputeType::kFloat32) {
    TrainConfig config;
    config.model = model;
    config.weight_dtype = weight_dtype;
    config.steps = config.optimizer.schedule_steps = 1;
    config.max_target_length = 14;
    config.checkpoint_directory = file(name) + "/checkpoints";
    const std::vector<ParamSpec> table = model_params(model);
    std::vector<float> params(static_cast<size_t>(parameter_count(table)));
    init_params(table, 3, params.data());
    // Norms that are all one would hide errors.
    for (size_t i = 0; i < params.size(); i += 7) params[i] += 0.125F;
    if (weight_dtype == ComputeType::kBfloat16) {
      std::vector<Bf16> rounded;
      for (const float value : params) rounded.push_back(Bf16::round(value));
      std::memcpy(params.data(), rounded.data(), rounded.size() * sizeof(Bf16));
    }
    const CheckpointStore store(config.checkpoint_directory, -1);
    ASSERT_TRUE(store.prepare().ok());
    std::vector<std::string> notes;
    const auto status =
        store.save({.folder = "", .step = 5, .samples = 0, .config = to_json(config)},
                   {.params = ShardedTensors::whole(model_rows(table, model, config.weight_type())),
                    .optimizer = "none",
                    .state = {}},
                   {params, {}}, notes);
    ASSERT_TRUE(status.ok()) << status;
  }

  std::vector<float> logits(const std::string& folder) {
    TrainConfig config;
    config.steps = config.optimizer.schedule_steps = 1;
    config.enable_checkpointing = false;
    write_file(file("tokens.json"),
               "[[1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 3, 5], "
               "[9, 9, 2, 2, 4, 4, 6, 6, 8, 8, 1, 1]]");
    const auto result =
        debug_step(config, {folder, file("tokens.json"), file("step.safetensors"), 1});
    EXPECT_TRUE(result.ok()) << result.status();
    const auto step = SafetensorsFile::open(file("step.safetensors"));
    const StoredTensor& tensor = (*step)->tensors().at("logits");
    std::vector<float> values(tensor.elements);
    EXPECT_TRUE((*step)->read(tensor, values).ok());
    return values;
  }
  // Checks that a Muster model computes the same as its export.
  void expect_same_function(const ModelConfig& model) {
    make_checkpoint("ours", model);
    ASSERT_EQ(error(file("ours"), "theirs"), "");
    const std::vector<float> ours = logits(file("ours")), theirs = logits(file("theirs"));
    ASSERT_EQ(ours.size(), theirs.size());
    for (size_t i = 0; i < ours.size(); ++i) ASSERT_NEAR(ours[i], theirs[i], 1e-5) << i;
  }

  TempFolder folder_;
  std::optional<ConvertTarget> target_;
  std::atomic<bool> stop_{false};
};

class ConvertFamily : public Convert, public testing::WithParamInterface<const char*> {};

TEST_P(ConvertFamily, RoundTripsBitForBit) {
  const std::string golden = hugging_face_golden(GetParam());
  const auto first = run(golden, "ours");
  ASSERT_TRUE(first.ok()) << first.status();
  const auto source = ParameterSource::open(golden);
  ASSERT_TRUE(source.ok()) << source.status();
  const StoredType stored = (*source)->description().stored;
  const auto second = run(file("ours"), "theirs", stored, 9'000);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(second->rounded, 0U);
  EXPECT_GT(second->files, 1U);
  EXPECT_EQ(weights_of(file("theirs")), weights_of(golden));
  const auto before = read_hugging_face_config(golden);
  const auto after = read_hugging_face_config(file("theirs"));
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_EQ(after->model, before->model);
  EXPECT_EQ(after->max_position, before->max_position);
}

INSTANTIATE_TEST_SUITE_P(Families, ConvertFamily, testing::ValuesIn(kHuggingFaceGoldens));

TEST_F(Convert, WritesTheIndexThatTransformersReads) {
  target_ = ConvertTarget::kHuggingFace;
  const std::string golden = hugging_face_golden("mixtral");
  ASSERT_TRUE(run(golden, "split", {}, 6'000).ok());
  const auto index =
      nlohmann::json::parse(read_file(file("split") + "/model.safetensors.index.json"));
  EXPECT_EQ(index["metadata"]["total_size"], 9072 * 2);
  std::set<std::string> files;
  for (const auto& item : index["weight_map"].items()) files.insert(item.value());
  for (const std::string& name : files) {
    EXPECT_THAT(name, testing::MatchesRegex("model-0000.-of-0000.\\.safetensors"));
    const auto file_there = SafetensorsFile::open(file("split") + "/" + name);
    ASSERT_TRUE(file_there.ok()) << file_there.status();
    uint64_t bytes = 0;
    for (const auto& [tensor, stored] : (*file_there)->tensors()) {
      EXPECT_EQ(index["weight_map"][tensor], name);
      bytes += stored.elements * 2;
    }
    EXPECT_LE(bytes, 6'000U);
  }
  EXPECT_EQ(weights_of(file("split")), weights_of(golden));
}

// Pax's and Meta's RoPE pairs are adjacent; those of a Llama in Hugging Face's layout are split.
TEST_F(Convert, InterleavedPairsBecomeSplitOnes) {
  auto model = read_hugging_face_config(hugging_face_golden("llama_gqa"));
  ASSERT_TRUE(model.ok());
  model->model.position_type = PositionType::kRopeInterleaved;
  model->model.qkv_bias = model->model.out_bias = true;
  expect_same_function(model->model);
}

// MaxText's GPT-3 multiplies by 1 + gain.
TEST_F(Convert, GainsOfGpt3BecomeThoseOfGpt2) {
  auto model = read_hugging_face_config(hugging_face_golden("gpt2"));
  ASSERT_TRUE(model.ok());
  model->model.norm_gain_offset = 1;
  expect_same_function(model->model);
}

TEST_F(Convert, RefusesAndLeavesNoFiles) {
  const std::string golden = hugging_face_golden("llama_mha");
  fs::create_directory(file("there"));
  write_file(file("there") + "/precious", "x");
  EXPECT_THAT(error(golden, "there"), HasSubstr("there is there already; nothing is overwritten"));
  EXPECT_THAT(error(golden, "no/where"), HasSubstr("there is no folder"));
  EXPECT_THAT(error(golden, "a", StoredType::kBf16), HasSubstr("--dtype bfloat16"));
  EXPECT_THAT(error(file("there"), "a"), HasSubstr("no model is there"));
  EXPECT_THAT(error(file("nowhere"), "a"), HasSubstr("there is no such folder"));
  write_file(file("text.txt"), "words");
  EXPECT_THAT(error(file("text.txt"), "a"),
              HasSubstr("text.txt is a file, not a model; name the folder"));
  fs::remove(file("text.txt"));
  auto model = read_hugging_face_config(golden);
  model->model.final_logits_soft_cap = 30;
  make_checkpoint("capped", model->model);
  EXPECT_THAT(error(file("capped"), "a"), HasSubstr("final_logits_soft_cap is 30.0"));
  stop_ = true;
  EXPECT_TRUE(absl::IsCancelled(run(golden, "a").status()));
  std::set<std::string> left;
  for (const auto& entry : fs::directory_iterator(folder_.path()))
    left.insert(entry.path().filename().string());
  EXPECT_EQ(left, (std::set<std::string>{"there", "capped"}));
}

TEST_F(Convert, NamesAValueBeyondTheType) {
  auto model = read_hugging_face_config(hugging_face_golden("llama_mha"));
  ASSERT_TRUE(model.ok());
  model->model.init_std = 1e5;
  make_checkpoint("wide", model->model);
  EXPECT_THAT(error(file("wide"), "half", StoredType::kF16),
              testing::AllOf(HasSubstr("tensor model.embed_tokens.weight"),
                             HasSubstr("beyond the largest number of float16")));
  EXPECT_FALSE(fs::exists(file("half")));
  const auto rounded = run(file("wide"), "brain", StoredType::kBf16);
  ASSERT_TRUE(rounded.ok()) << rounded.status();
  EXPECT_GT(rounded->rounded, 1000U);
}

// Weights of bf16 are exported as they are, and as any other type on request.
TEST_F(Convert, WeightsOfBf16StayBf16) {
  const auto model = read_hugging_face_config(hugging_face_golden("llama_mha"));
  ASSERT_TRUE(model.ok());
  make_checkpoint("narrow", model->model, ComputeType::kBfloat16);
  const auto exported = run(file("narrow"), "as-it-is"),
             widened = run(file("narrow"), "wide", StoredType::kF32);
  ASSERT_TRUE(exported.ok() && widened.ok()) << exported.status() << widened.status();
  EXPECT_EQ(exported->stored, StoredType::kBf16);
  EXPECT_EQ(exported->rounded, 0U);
  EXPECT_EQ(widened->stored, StoredType::kF32);
  const std::vector<float> ours = logits(file("narrow"));
  EXPECT_EQ(logits(file("as-it-is")), logits(file("wide")));
  const std::vector<float> theirs = logits(file("wide"));
  ASSERT_EQ(ours.size(), theirs.size());
  for (size_t i = 0; i < ours.size(); ++i) ASSERT_NEAR(ours[i], theirs[i], 1e-5) << i;
}

TEST_F(Convert, AcceptsTheFolderOfARunAndItsCheckpoints) {
  ASSERT_TRUE(run(hugging_face_golden("gemma"), "run").ok());
  for (const char* path : {"run", "run/", "run/checkpoints", "run/checkpoints/0"}) {
    fs::remove_all(file("back"));
    EXPECT_EQ(error(file(path), "back"), "") << path;
  }
  // A run has a config.json that is not Hugging Face's.
  write_file(file("run") + "/config.json", R"({"run_name": "run"})");
  fs::remove_all(file("back"));
  EXPECT_EQ(error(file("run"), "back"), "");
  fs::remove_all(file("run") + "/checkpoints/0");
  EXPECT_THAT(error(file("run"), "again"), HasSubstr("there is no checkpoint in"));
}

}  // namespace
}  // namespace muster::trainer
