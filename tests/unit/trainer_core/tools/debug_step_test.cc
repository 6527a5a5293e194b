// One step on given tokens against Hugging Face's transformers in fp64, with the folders of
// tests/golden/make_hugging_face.py. Each mutation test makes one mistake that a golden must
// detect.
#include "trainer_core/tools/debug_step.h"

#include <gmock/gmock.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/paths.h"
#include "tests/unit/temp_folder.h"
#include "tests/unit/trainer_core/hugging_face_goldens.h"
#include "trainer_core/checkpoint/parameter_source.h"
#include "trainer_core/checkpoint/safetensors.h"
#include "trainer_core/rank/rank_model.h"

namespace muster::trainer {
namespace {

using testing::HasSubstr;

TrainConfig settings() {
  TrainConfig config;
  config.run_name = "debug";
  config.optimizer.learning_rate = 1e-3;
  config.optimizer.schedule_steps = 1;
  config.steps = 1;
  config.enable_checkpointing = false;
  return config;
}

std::vector<float> numbers(const SafetensorsFile& file, const std::string& name) {
  const auto found = file.tensors().find(name);
  EXPECT_NE(found, file.tensors().end()) << name;
  if (found == file.tensors().end()) return {};
  std::vector<float> values(found->second.elements);
  EXPECT_TRUE(file.read(found->second, values).ok());
  return values;
}

double largest_of(const std::vector<float>& values) {
  double largest = 0;
  for (const float value : values) largest = std::max(largest, std::abs(double{value}));
  return largest;
}

double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double largest = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    largest = std::max(largest, std::abs(double{a[i]} - b[i]));
  return largest;
}

// The largest difference of parameters after Adam steps, except those whose gradient is only
// rounding (a key's bias of GPT-2): Adam takes a whole step along it.
double parameter_difference(const std::vector<float>& ours, const std::vector<float>& theirs,
                            const std::vector<float>& grads, double steepest) {
  double largest = 0;
  for (size_t i = 0; i < ours.size(); ++i) {
    if (std::abs(grads[i]) < 1e-5 * steepest) continue;
    largest = std::max(largest, std::abs(double{ours[i]} - theirs[i]));
  }
  return largest;
}

class DebugStep : public testing::Test {
 protected:
  absl::StatusOr<DebugStepResult> run(const std::string& folder, int32_t threads = 1,
                                      RematPolicy remat = RematPolicy::kNone) {
    TrainConfig config = settings();
    config.remat_policy = remat;
    return debug_step(config, {folder, folder + "/tokens.json", out_, threads});
  }
  std::string error_with_tokens(const std::string& text) {
    const std::string path = folder_.file("tokens.json");
    std::ofstream(path) << text;
    const auto result = debug_step(settings(), {hugging_face_golden("gpt2"), path, out_, 1});
    EXPECT_FALSE(std::filesystem::exists(out_)) << text;
    return std::string(result.status().message());
  }

  TempFolder folder_;
  std::string out_ = folder_.file("step.safetensors");
};

class DebugStepGolden : public DebugStep, public testing::WithParamInterface<const char*> {};

TEST_P(DebugStepGolden, AgreesWithTransformers) {
  for (const RematPolicy remat : {RematPolicy::kNone, RematPolicy::kFull}) {
    const auto result = run(hugging_face_golden(GetParam()), 2, remat);
    ASSERT_TRUE(result.ok()) << result.status();
    const auto actual = SafetensorsFile::open(out_);
    const auto expected =
        SafetensorsFile::open(hugging_face_golden(GetParam()) + "/step.safetensors");
    ASSERT_TRUE(actual.ok() && expected.ok());
    EXPECT_LE(largest_difference(numbers(**actual, "logits"), numbers(**expected, "logits")), 1e-4);
    const double loss = numbers(**expected, "loss")[0];
    EXPECT_NEAR(numbers(**actual, "loss")[0], loss, 1e-6 * loss);
    double steepest = 0;  // over all gradients
    for (const auto& [name, entry] : (*expected)->tensors()) {
      if (name.starts_with("grad."))
        steepest = std::max(steepest, largest_of(numbers(**expected, name)));
    }
    size_t compared = 0;
    for (const auto& [name, entry] : (*expected)->tensors()) {
      if (name.starts_with("param10.")) continue;
      const auto found = (*actual)->tensors().find(name);
      ASSERT_NE(found, (*actual)->tensors().end()) << name;
      EXPECT_EQ(found->second.shape, entry.shape) << name;
      const std::vector<float> ours = numbers(**actual, name), theirs = numbers(**expected, name);
      if (name.starts_with("grad.")) {
        EXPECT_LE(largest_difference(ours, theirs), 1e-4 * largest_of(theirs)) << name;
      }
      if (!name.starts_with("param.")) continue;
      ++compared;
      const std::vector<float> grads = numbers(**expected, "grad." + name.substr(6));
      const double difference = parameter_difference(ours, theirs, grads, steepest);
      EXPECT_LE(difference, 1e-5 * std::max(largest_of(theirs), 1.0)) << name;
    }
    EXPECT_GT(compared, 10U);
    EXPECT_EQ((*actual)->tensors().size(), 2 + 2 * compared);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, DebugStepGolden, testing::ValuesIn(kHuggingFaceGoldens));

// Meta's files with the weights for which transformers computed the logits:
// tests/golden/make_meta.py.
TEST_F(DebugStep, AgreesOnMetasFiles) {
  for (const char* name : {"llama2", "llama3"}) {
    const std::string golden = source_dir() + "/tests/golden/meta/" + name;
    const auto result = run(golden);
    ASSERT_TRUE(result.ok()) << result.status();
    const auto actual = SafetensorsFile::open(out_);
    const auto expected = SafetensorsFile::open(golden + "/logits.safetensors");
    ASSERT_TRUE(actual.ok() && expected.ok());
    EXPECT_LE(largest_difference(numbers(**actual, "logits"), numbers(**expected, "logits")), 1e-4)
        << name;
  }
}

// A golden's model with its weights and its batch; `mutate` changes the model before the plan is
// made.
struct GoldenRankModel {
  explicit GoldenRankModel(const std::string& family,
                           const std::function<void(ModelConfig&)>& mutate = nullptr) {
    auto model = read_hugging_face_config(hugging_face_golden(family));
    EXPECT_TRUE(model.ok()) << model.status();
    original = model->model;
    ModelConfig mutated = original;
    if (mutate) mutate(mutated);
    const nlohmann::json lists =
        nlohmann::json::parse(std::ifstream(hugging_face_golden(family) + "/tokens.json"));
    config.model = mutated;
    config.per_device_batch_size = static_cast<int32_t>(lists.size());
    config.max_target_length = static_cast<int32_t>(lists[0].size());
    rank_model = std::make_unique<RankModel>(config, 1);
    tensors = hugging_face_tensors(original, rank_model->table());
    const auto source = open_hugging_face(hugging_face_golden(family));
    EXPECT_TRUE(source.ok()) << source.status();
    for (const HuggingFaceTensor& tensor : tensors)
      EXPECT_TRUE((*source)->read(tensor, tensor.part_of(rank_model->model().params())).ok());
    for (const nlohmann::json& list : lists) {
      for (const nlohmann::json& id : list) tokens.push_back(id.get<int32_t>());
    }
    auto file = SafetensorsFile::open(hugging_face_golden(family) + "/step.safetensors");
    EXPECT_TRUE(file.ok()) << file.status();
    expected = *std::move(file);
  }

  double logits_error() {
    std::vector<float> logits(tokens.size() * static_cast<size_t>(config.model.vocab_size));
    rank_model->model().all_logits(tokens, logits.data());
    return largest_difference(logits, numbers(*expected, "logits"));
  }

  TrainConfig config = settings();
  ModelConfig original;
  std::unique_ptr<RankModel> rank_model;
  std::vector<HuggingFaceTensor> tensors;
  std::vector<int32_t> tokens;
  std::unique_ptr<SafetensorsFile> expected;
};

TEST_P(DebugStepGolden, TenAdamWSteps) {
  GoldenRankModel test(GetParam());
  Transformer& model = test.rank_model->model();
  std::vector<int32_t> targets(test.tokens.begin() + 1, test.tokens.end());
  targets.push_back(0);
  std::vector<float> weights(test.tokens.size(), 1.0F);
  const auto length = static_cast<size_t>(test.config.max_target_length);
  for (size_t i = length - 1; i < weights.size(); i += length) weights[i] = 0;
  const OptimizerConfig& optimizer = test.config.optimizer;
  for (int64_t t = 1; t <= 10; ++t) {
    const double weight = model.forward_backward({test.tokens, targets, weights}).weight;
    const double norm =
        std::sqrt(test.rank_model->ops().sum_of_squares(RankModel::flat(model.grads()))) / weight;
    const UpdateStep update{.learning_rate = optimizer.learning_rate,
                            .grad_scale = clip_factor(norm, optimizer.clipping_threshold) / weight,
                            .t = t};
    ASSERT_TRUE(test.rank_model->update(update).ok());
  }
  double steepest = 0;
  for (const HuggingFaceTensor& tensor : test.tensors)
    steepest = std::max(steepest, largest_of(numbers(*test.expected, "grad." + tensor.name)));
  for (const HuggingFaceTensor& tensor : test.tensors) {
    const std::vector<float> ours = in_their_layout(tensor, tensor.part_of(model.params()));
    const std::vector<float> theirs = numbers(*test.expected, "param10." + tensor.name);
    const std::vector<float> grads = numbers(*test.expected, "grad." + tensor.name);
    EXPECT_LE(parameter_difference(ours, theirs, grads, steepest),
              1e-5 * std::max(largest_of(theirs), 1.0))
        << tensor.name;
  }
}

double error_with(const std::string& family, const std::function<void(ModelConfig&)>& mutate) {
  return GoldenRankModel(family, mutate).logits_error();
}

// Swaps the query heads of two groups: a head attends with the other group's keys.
void mix_groups(const ModelConfig& model, const std::vector<ParamSpec>& table,
                std::span<float> params) {
  const auto head = static_cast<std::ptrdiff_t>(model.head_dim) * model.emb_dim;
  for (const ParamSpec& spec : table) {
    if (!spec.name.ends_with("q_proj.weight")) continue;
    const auto first = params.begin() + spec.offset;
    std::swap_ranges(first + head, first + 2 * head, first + 2 * head);  // heads 1 and 2 of 4
  }
}

TEST(Mutations, EachIsDetectedByAGolden) {
  constexpr double kTolerance = 1e-4;  // tolerance for the goldens' logits
  for (const char* family : kHuggingFaceGoldens)
    EXPECT_LE(error_with(family, [](ModelConfig&) {}), kTolerance) << family;
  const auto expect_noticed = [&](const char* what, double error) {
    EXPECT_GT(error, 10 * kTolerance) << what;
  };
  expect_noticed("RoPE rotates interleaved pairs", error_with("llama_mha", [](ModelConfig& m) {
                   m.position_type = PositionType::kRopeInterleaved;
                 }));
  expect_noticed("RoPE is not stretched",
                 error_with("llama_gqa", [](ModelConfig& m) { m.rope_scaling.factor = 1; }));
  expect_noticed("Gemma's norms lack the 1",
                 error_with("gemma", [](ModelConfig& m) { m.norm_gain_offset = 0; }));
  expect_noticed("Gemma's embeddings are not scaled",
                 error_with("gemma", [](ModelConfig& m) { m.scale_embeddings = false; }));
  expect_noticed("scores are not scaled",
                 error_with("mistral", [](ModelConfig& m) { m.query_scale = 1; }));
  expect_noticed("another eps",
                 error_with("llama_mha", [](ModelConfig& m) { m.norm_epsilon = 1e-5; }));
  expect_noticed("another eps of LayerNorm",
                 error_with("gpt2", [](ModelConfig& m) { m.norm_epsilon = 1e-2; }));
  expect_noticed("no window",
                 error_with("mistral", [](ModelConfig& m) { m.sliding_window_size = 0; }));
  expect_noticed("a window one token longer",
                 error_with("mistral", [](ModelConfig& m) { m.sliding_window_size = 6; }));
  expect_noticed("another activation",
                 error_with("gemma", [](ModelConfig& m) { m.activation = Activation::kSilu; }));
  GoldenRankModel mixed("llama_gqa");
  mix_groups(mixed.original, mixed.rank_model->table(), mixed.rank_model->model().params());
  expect_noticed("groups are mixed up", mixed.logits_error());
}

TEST_F(DebugStep, AcceptsAMusterCheckpoint) {
  const auto model = read_hugging_face_config(hugging_face_golden("llama_gqa"));
  ASSERT_TRUE(model.ok());
  TrainConfig config = settings();
  config.model = model->model;
  config.max_target_length = 14;
  RankModel rank_model(config, 1);
  const auto source = open_hugging_face(hugging_face_golden("llama_gqa"));
  ASSERT_TRUE(source.ok() && load_parameters(**source, rank_model.model().params()).ok());
  const CheckpointStore store(folder_.file("checkpoints"), -1);
  ASSERT_TRUE(store.prepare().ok());
  std::vector<std::string> notes;
  const CheckpointInfo info{.folder = "", .step = 7, .samples = 0, .config = to_json(config)};
  ASSERT_TRUE(
      store.save(info, rank_model.plan().checkpoint_layout(), rank_model.state(), notes).ok());

  const std::string tokens = hugging_face_golden("llama_gqa") + "/tokens.json";
  const auto ours = debug_step(settings(), {folder_.file("checkpoints"), tokens, out_, 1});
  ASSERT_TRUE(ours.ok()) << ours.status();
  const auto theirs = debug_step(settings(), {hugging_face_golden("llama_gqa"), tokens, out_, 1});
  ASSERT_TRUE(theirs.ok()) << theirs.status();
  EXPECT_EQ(ours->loss, theirs->loss);
  EXPECT_EQ(ours->gradient_norm, theirs->gradient_norm);
}

TEST_F(DebugStep, BadInput) {
  EXPECT_THAT(error_with_tokens("{}"), HasSubstr("expected a list of lists"));
  EXPECT_THAT(error_with_tokens("[[1]]"), HasSubstr("nothing to predict"));
  EXPECT_THAT(error_with_tokens("[[1, 2], [3]]"),
              HasSubstr("list 1 has 1 token, and the first has 2"));
  EXPECT_THAT(error_with_tokens("[[1, 2], \"ab\"]"), HasSubstr("\"ab\" is not a list"));
  EXPECT_THAT(error_with_tokens("[[1, 31]]"),
              HasSubstr("token 31 in list 0 is no id below vocab_size (31)"));
  EXPECT_THAT(error_with_tokens("[[1, -1]]"), HasSubstr("token -1"));
  const std::string deep = std::string(50'000, '[') + std::string(50'000, ']');
  EXPECT_THAT(error_with_tokens("[[1, " + deep + "]]"), HasSubstr("nests values more than"));
  std::string long_list = "[[0";
  for (int i = 0; i < 24; ++i) long_list += ", 0";
  EXPECT_THAT(error_with_tokens(long_list + "]]"),
              HasSubstr("a list has 25 tokens, but the model has learned positions for 24"));
  EXPECT_THAT(std::string(run(folder_.path()).status().message()), HasSubstr("no model is there"));
}

TEST_F(DebugStep, WritesOnlyItsOwnFile) {
  const auto error_with_out = [this](const std::string& out) {
    out_ = out;
    return std::string(run(hugging_face_golden("gpt2")).status().message());
  };
  EXPECT_THAT(error_with_out(folder_.file("missing/step.safetensors")), HasSubstr("No such file"));
  EXPECT_THAT(error_with_out(""), HasSubstr("name a file"));
  EXPECT_THAT(error_with_out(folder_.path()), HasSubstr("not a regular file"));
  EXPECT_THAT(error_with_out(hugging_face_golden("gpt2") + "/new.safetensors"),
              HasSubstr("model's folder"));
  const std::string precious = folder_.file("precious");
  std::ofstream(precious) << "mine";
  std::filesystem::create_symlink(precious, folder_.file("link"));
  EXPECT_THAT(error_with_out(folder_.file("link")), HasSubstr("not a regular file"));
  EXPECT_EQ(std::filesystem::file_size(precious), 4U);
  out_ = precious;  // an earlier output is replaced
  EXPECT_TRUE(run(hugging_face_golden("gpt2")).ok());
  EXPECT_TRUE(SafetensorsFile::open(precious).ok());
  // Only precious and the link remain, no temporary file.
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_.path()), {}), 2);
}

TEST_F(DebugStep, NamesTheNonFiniteTensor) {
  GoldenRankModel damaged("llama_gqa");
  const std::span<float> params = damaged.rank_model->model().params();
  for (const HuggingFaceTensor& tensor : damaged.tensors) {
    if (tensor.name == "model.layers.1.mlp.up_proj.weight")
      params[static_cast<size_t>(tensor.offset) + 3] = std::nanf("");
  }
  const CheckpointStore store(folder_.file("checkpoints"), -1);
  ASSERT_TRUE(store.prepare().ok());
  std::vector<std::string> notes;
  const CheckpointInfo info{
      .folder = "", .step = 1, .samples = 0, .config = to_json(damaged.config)};
  ASSERT_TRUE(store
                  .save(info, damaged.rank_model->plan().checkpoint_layout(),
                        damaged.rank_model->state(), notes)
                  .ok());
  const auto result = debug_step(
      settings(),
      {folder_.file("checkpoints"), hugging_face_golden("llama_gqa") + "/tokens.json", out_, 1});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->not_finite, "model.layers.1.mlp.up_proj.weight");
  const auto file = SafetensorsFile::open(out_);
  ASSERT_TRUE(file.ok());
  EXPECT_TRUE((*file)->tensors().contains("grad.lm_head.weight"));
  EXPECT_FALSE((*file)->tensors().contains("param.lm_head.weight"));
}

TEST_F(DebugStep, RefusesWhatDoesNotFitInMemory) {
  // A sparse model file of some gigabytes, and a batch whose logits take a terabyte.
  std::filesystem::create_directory(folder_.file("huge"));
  nlohmann::json config =
      nlohmann::json::parse(std::ifstream(hugging_face_golden("llama_gqa") + "/config.json"));
  config["vocab_size"] = 1 << 24;
  std::ofstream(folder_.file("huge/config.json")) << config;
  const auto model = parse_hugging_face_config(config);
  ASSERT_TRUE(model.ok()) << model.status();
  std::vector<TensorHeader> headers;
  uint64_t bytes = 0;
  for (const ParamSpec& spec : model_params(model->model)) {
    headers.push_back({spec.name, spec.shape});
    bytes += static_cast<uint64_t>(spec.elements()) * sizeof(float);
  }
  const std::string header = safetensors_header(headers);
  std::ofstream(folder_.file("huge/model.safetensors")) << header;
  std::filesystem::resize_file(folder_.file("huge/model.safetensors"), header.size() + bytes);
  nlohmann::json lists = nlohmann::json::array();
  for (int i = 0; i < 2000; ++i) lists.push_back({1, 2, 3, 4, 5, 6, 7, 8});
  std::ofstream(folder_.file("huge/tokens.json")) << lists;
  EXPECT_THAT(std::string(run(folder_.file("huge")).status().message()),
              HasSubstr("MiB of memory"));
}

}  // namespace
}  // namespace muster::trainer
