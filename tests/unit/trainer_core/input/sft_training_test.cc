// Trainings on samples for fine-tuning: the loss of PyTorch, on any mesh, and after a restart.
#include <gmock/gmock.h>

#include <fstream>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/paths.h"
#include "tests/unit/temp_folder.h"
#include "tests/unit/trainer_core/golden_file.h"
#include "tests/unit/trainer_core/train_helpers.h"
#include "trainer_core/base/train_mesh.h"
#include "trainer_core/checkpoint/find_checkpoint.h"
#include "trainer_core/data/sft_samples.h"
#include "trainer_core/data/text_start.h"
#include "trainer_core/input/training_data.h"
#include "trainer_core/model/plan_builder.h"
#include "trainer_core/model/transformer.h"
#include "trainer_core/text/tokenize.h"

namespace muster::trainer {
namespace {

using testing::Each;
using testing::HasSubstr;

class SftTraining : public testing::Test {
 protected:
  void SetUp() override {
    make_text_dataset(folder_.path());
    std::ofstream samples(folder_.file("samples.jsonl"));
    for (int i = 0; i < 120; ++i) {
      samples << nlohmann::json{{"prompt", absl::StrCat("In the year ", i * i % 41, ", that")},
                                {"completion", i % 3 == 0 ? " David" : " Saul the king went up"},
                                {"weight", 1 + i % 4 * 0.5}}
              << "\n";
    }
    samples.close();
    TokenizeOptions options;
    options.inputs = {folder_.file("samples.jsonl")};
    options.tokenizer_path = folder_.file("t.model");
    options.output_directory = folder_.file("sft");
    options.sft = true;
    const auto report = tokenize_files(options);
    ASSERT_TRUE(report.ok()) << report.status();
  }

  // A global batch of four sequences in two accumulation steps.
  TrainConfig config(const std::vector<std::pair<MeshAxis, int32_t>>& degrees = {}) const {
    TrainConfig config = tiny_config(1);
    config.model.vocab_size = kTextVocab;
    config.model.num_layers = 4;
    config.model.num_kv_heads = 4;
    config.max_target_length = 32;
    config.dataset_type = DatasetType::kShards;
    config.dataset_path = folder_.file("sft");
    config.sft.enabled = true;
    config.steps = 6;
    for (const auto& [axis, degree] : degrees) config.mesh.ici[static_cast<size_t>(axis)] = degree;
    const int32_t slices = batch_slice(mesh_of(config.mesh), 0).count;
    config.gradient_accumulation_steps = slices == 4 ? 1 : 2;
    config.per_device_batch_size = 4 / slices / config.gradient_accumulation_steps;
    return config;
  }

  TempFolder folder_;
};

TEST_F(SftTraining, EveryMeshOfFourRanksHasTheCurveOfOneRank) {
  constexpr MeshAxis kAxes[] = {MeshAxis::kData,    MeshAxis::kFsdp,     MeshAxis::kTensor,
                                MeshAxis::kContext, MeshAxis::kSequence, MeshAxis::kPipeline};
  for (const LossAverage average : {LossAverage::kTokens, LossAverage::kSamples}) {
    TrainConfig one = config();
    one.sft.loss_average = average;
    const RunResult alone = run(one);
    ASSERT_THAT(alone.codes, Each(ExitCode::kOk)) << alone.err;
    EXPECT_THAT(alone.out, HasSubstr(": 120 samples in "));
    EXPECT_LT(alone.losses().back(), alone.losses().front());
    for (size_t a = 0; a < std::size(kAxes); ++a) {
      for (size_t b = a; b < std::size(kAxes); ++b) {
        TrainConfig four =
            a == b ? config({{kAxes[a], 4}}) : config({{kAxes[a], 2}, {kAxes[b], 2}});
        four.sft.loss_average = average;
        SCOPED_TRACE(absl::StrCat("axes ", a, " and ", b));
        const absl::Status valid = validate(four);
        ASSERT_TRUE(valid.ok()) << valid;
        const RunResult shared = run(four);
        ASSERT_THAT(shared.codes, Each(ExitCode::kOk)) << shared.err;
        ASSERT_EQ(shared.losses().size(), alone.losses().size());
        for (size_t i = 0; i < alone.losses().size(); ++i) {
          EXPECT_NEAR(shared.losses()[i], alone.losses()[i], 1e-5) << i;
          EXPECT_NEAR(shared.records[0][i].total_weights, alone.records[0][i].total_weights, 1e-5);
        }
      }
    }
  }
}

// Texts of the model begin as its samples.
TEST_F(SftTraining, CheckpointsRecordTheTokenWithWhichSamplesBegin) {
  for (const bool bos : {false, true}) {
    TokenizeOptions options;
    options.inputs = {folder_.file("samples.jsonl")};
    options.tokenizer_path = folder_.file("t.model");
    options.output_directory = folder_.file(absl::StrCat("begins-", bos));
    options.sft = true;
    options.sft_add_bos = bos;
    ASSERT_TRUE(tokenize_files(options).ok());
    TrainConfig saved = config();
    saved.steps = 1;
    saved.dataset_path = options.output_directory;
    saved.enable_checkpointing = true;
    saved.checkpoint_directory = folder_.file(absl::StrCat("saved-", bos));
    const RunResult result = run(saved);
    ASSERT_THAT(result.codes, Each(ExitCode::kOk)) << result.err;
    const auto training = training_of_checkpoint(saved.checkpoint_directory);
    ASSERT_TRUE(training.ok()) << training.status();
    const auto tokenizer = Tokenizer::load(options.tokenizer_path);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    const auto start = expected_text_start(*training, **tokenizer);
    ASSERT_TRUE(start.ok()) << start.status();
    EXPECT_EQ(start->always, bos);
    EXPECT_EQ(start->id, bos ? (*tokenizer)->bos_id() : (*tokenizer)->eos_id());
  }
}

TEST_F(SftTraining, ARestartHasTheBitsOfAnUndisturbedRun) {
  const auto saving = [&](const std::string& name) {
    TrainConfig saving = config({{MeshAxis::kFsdp, 2}, {MeshAxis::kTensor, 2}});
    saving.enable_checkpointing = true;
    saving.checkpoint_directory = folder_.file(name);
    return saving;
  };
  const RunResult whole = run(saving("whole"));
  ASSERT_THAT(whole.codes, Each(ExitCode::kOk)) << whole.err;
  const RunResult first = run(saving("parts"), [](int, const StepRecord& record, auto& stop) {
    if (record.step == 2) stop = true;
  });
  ASSERT_THAT(first.codes, Each(ExitCode::kPreempted)) << first.err;
  const RunResult second = run(saving("parts"));
  ASSERT_THAT(second.codes, Each(ExitCode::kOk)) << second.err;
  EXPECT_LT(second.losses().size(), whole.losses().size());
  EXPECT_EQ(second.losses().back(), whole.losses().back());
  EXPECT_EQ(checkpoint_bytes(folder_.file("parts/6")), checkpoint_bytes(folder_.file("whole/6")));
}

TEST_F(SftTraining, OtherSettingsAndDataAreNamed) {
  TrainConfig plain = config();
  plain.sft = {};
  EXPECT_THAT(run(plain).err,
              HasSubstr("has samples for fine-tuning (muster tokenize --sft); set use_sft=True"));
  TrainConfig shortened = config();
  shortened.max_target_length = 8;
  shortened.sft.long_samples = LongSamples::kDrop;
  EXPECT_THAT(run(shortened).err, HasSubstr("nothing is left to train on"));
}

// The loss of packed sequences is that of each sample alone in PyTorch (tests/golden/make_sft.py).
TEST(SftGolden, HasTheLossOfPyTorch) {
  TempFolder folder;
  TokenizeOptions options;
  options.inputs = {source_dir() + "/tests/golden/sft/samples.jsonl"};
  options.tokenizer_path = source_dir() + "/tests/golden/tokenizers/llama3.json";
  options.chat_template = source_dir() + "/tests/golden/chat/chatml.jinja";
  options.output_directory = folder.path();
  options.sft = true;
  ASSERT_TRUE(tokenize_files(options).ok());
  const GoldenFile golden("sft/sft.safetensors");
  TrainConfig config = tiny_config(1);
  nlohmann::json keys = to_json(config);
  keys.update(golden.metadata("config").at("model"));
  const auto parsed = train_config_from_json(keys);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  const auto losses = golden.metadata("losses").get<std::vector<double>>();
  for (const bool averages : {false, true}) {
    auto dataset = TokenDataset::open(folder.path(), parsed->model.vocab_size);
    ASSERT_TRUE(dataset.ok()) << dataset.status();
    constexpr int32_t kLength = 256;
    auto made =
        make_sft_samples(Corpus(*std::move(dataset)), kLength, {.averages_samples = averages});
    ASSERT_TRUE(made.ok()) << made.status();
    EXPECT_EQ(made->counts.too_long, 0U);
    const auto batch = static_cast<int32_t>(made->samples->size());
    EXPECT_LT(batch, 7) << "samples share sequences";
    const size_t rows = static_cast<size_t>(batch) * kLength;
    std::vector<int32_t> tokens(rows), targets(rows), starts(rows);
    std::vector<float> weights(rows);
    for (int32_t i = 0; i < batch; ++i) {
      const auto spans =
          SequenceSpans{tokens, targets, starts, weights}.sequence(static_cast<size_t>(i), kLength);
      ASSERT_TRUE(made->samples->read(static_cast<uint64_t>(i), spans).ok());
    }
    const TransformerPlan plan =
        build_transformer_plan(parsed->model, batch, kLength, DType::kF32,
                               layer_placements(RematPolicy::kNone), true, 1, 0, true);
    Arena arena(plan.memory);
    const auto ops = cpu_ops(1);
    Transformer model(plan, arena, *ops);
    for (const ParamSpec& spec : plan.params) {
      const auto values = golden.tensor<float>("param/" + spec.name);
      ASSERT_EQ(static_cast<int64_t>(values.size()), spec.elements()) << spec.name;
      std::ranges::copy(values, model.params().begin() + spec.offset);
    }
    const LossSum sum = model.forward_backward(
        {.tokens = tokens, .targets = targets, .weights = weights, .starts = starts});
    EXPECT_NEAR(sum.loss / sum.weight, losses[averages ? 1 : 0], 1e-5);
  }
}

}  // namespace
}  // namespace muster::trainer
