// Adapters that are read from the folders of runs: their base, their layout, and their settings.
#include "trainer_core/generation/adapter_files.h"

#include <gmock/gmock.h>

#include <cmath>
#include <string>

#include "tests/unit/temp_folder.h"
#include "tests/unit/trainer_core/generation/test_engine.h"
#include "tests/unit/trainer_core/model/transformer_fixture.h"
#include "trainer_core/checkpoint/checkpoint.h"
#include "trainer_core/model/scaling_state.h"

namespace muster::trainer {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr int32_t kContext = 16;
const DecoderSize kSize{.context = kContext, .sequences_max = 2, .step_rows = kContext};

class AdapterFiles : public testing::Test {
 protected:
  // Trains two steps, and returns the folder of the checkpoint.
  std::string train(const std::string& name, TrainConfig config) {
    config.steps = 2;
    config.optimizer.warmup_steps = 0;
    config.enable_checkpointing = true;
    config.checkpoint_period = 1;
    config.checkpoint_directory = folder_.file(name);
    const RunResult result = run(config);
    EXPECT_THAT(result.codes, Each(ExitCode::kOk)) << result.err;
    return folder_.file(name + "/2");
  }

  static TrainConfig adapted(TrainConfig config, const std::string& base) {
    config.load_parameters_path = base;
    config.optimizer.learning_rate = 0.1;
    config.model.lora = {
        .rank = 4, .alpha = 8, .targets = lora_targets(config.model, LoraLayers::kAll)};
    return config;
  }

  // Returns the log-probabilities of a prompt.
  static std::vector<double> logprobs(std::unique_ptr<Decoder> decoder, int32_t adapter = -1) {
    const int32_t vocab = decoder->plan().model.vocab_size;
    TestEngine test(std::move(decoder), vocab);
    const RequestId id = test.submit({.prompt = some_prompt(kContext, 1, vocab),
                                      .max_tokens = 0,
                                      .top_logprobs = 0,
                                      .prompt_logprobs = true,
                                      .adapter = adapter});
    test.run();
    std::vector<double> values;
    for (const PositionLogprobs& one : test.results[id].prompt)
      values.push_back(one.chosen.logprob);
    return values;
  }

  TempFolder folder_;
};

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  EXPECT_EQ(a.size(), b.size());
  double largest = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    EXPECT_TRUE(std::isfinite(a[i])) << i;
    largest = std::max(largest, std::abs(a[i] - b[i]));
  }
  return largest;
}

TEST_F(AdapterFiles, ARunInFp8IsMergedWithTheScalingStateOfItsTraining) {
  TrainConfig config = tiny_config(1);
  config.model.quantization.type = QuantizationType::kFp8Delayed;
  config = adapted(config, train("base", config));
  const std::string checkpoint = train("run", config);
  auto decoder = Decoder::load(config, checkpoint, kSize);
  ASSERT_TRUE(decoder.ok()) << decoder.status();
  EXPECT_THAT((*decoder)->notes(), ElementsAre(HasSubstr("are merged into")));

  const ModelConfig model = base_of(config.model);
  TestModel whole(model, 1, kContext);
  const auto merged = ParameterSource::open(checkpoint);
  ASSERT_TRUE(merged.ok()) << merged.status();
  ASSERT_TRUE(load_parameters(**merged, whole.model.params()).ok());
  const auto table = part_of(model_params(config.model), ParamPart::kTrained);
  const std::vector<TensorRow> rows = model_rows(table, model);
  std::vector<TensorBox> scaling;
  for (size_t i = table.size(); i < rows.size(); ++i) {
    scaling.push_back(whole_box(rows[i]));
    scaling.back().offset += (*merged)->parameters() - parameter_count(table);
  }
  ASSERT_TRUE(restore_parameters(checkpoint, rows, scaling, whole.model.state()).ok());
  const std::vector<int32_t> prompt = some_prompt(kContext, 1, model.vocab_size);
  const auto vocab = static_cast<size_t>(model.vocab_size);
  std::vector<float> logits(kContext * vocab);
  whole.model.all_logits(prompt, logits.data());
  std::vector<double> expected;
  for (size_t i = 1; i < prompt.size(); ++i) {
    const auto row = std::span(logits).subspan((i - 1) * vocab, vocab);
    expected.push_back(position_logprobs(row, prompt[i], 0, model.vocab_size).chosen.logprob);
  }
  EXPECT_LT(largest_difference(logprobs(*std::move(decoder)), expected), 1e-4);
}

TEST_F(AdapterFiles, ARunOfOtherShapesThanTheConfigIsRefused) {
  const TrainConfig config = adapted(tiny_config(1), train("base", tiny_config(1)));
  const std::string checkpoint = train("run", config);
  const auto refused = [&](const auto& change) {
    TrainConfig other = config;
    change(other.model);
    return std::string(Decoder::load(other, checkpoint, kSize).status().message());
  };
  EXPECT_THAT(refused([](ModelConfig& model) { model.vocab_size = 128; }),
              AllOf(HasSubstr("[64, 32]"), HasSubstr("[128, 32]")));
  EXPECT_THAT(refused([](ModelConfig& model) { model.num_layers = 3; }),
              HasSubstr("has the tensor"));
}

// A base and its adapter may have different layouts of RoPE's pairs.
TEST_F(AdapterFiles, AdaptersAreReorderedToTheLayoutOfTheBase) {
  for (const auto& [of_adapter, of_base] :
       {std::pair(PositionType::kRope, PositionType::kRopeInterleaved),
        std::pair(PositionType::kRopeInterleaved, PositionType::kRope)}) {
    const std::string name = of_base == PositionType::kRope ? "a" : "b";
    TrainConfig config = tiny_config(1);
    config.model.position_type = of_adapter;
    const std::string original = train(name + "original", config);
    const TrainConfig with_adapters = adapted(config, original);
    const std::string adapter = train(name + "adapter", with_adapters);
    config.model.position_type = of_base;
    config.load_parameters_path = original;
    config.optimizer.learning_rate = 0;
    const std::string base = train(name + "base", config);

    const std::vector<AdapterFolder> folders = {{"one", adapter}};
    const auto opened = open_served_adapters(folders, base, config.model);
    ASSERT_TRUE(opened.ok()) << opened.status();
    const auto load = [&](const TrainConfig& of, const std::string& from,
                          std::span<const NamedAdapter> adapters) {
      auto decoder = Decoder::load(of, from, kSize, adapters);
      EXPECT_TRUE(decoder.ok()) << decoder.status();
      return *std::move(decoder);
    };
    const auto served = logprobs(load(config, base, *opened), 0);
    EXPECT_LT(largest_difference(served, logprobs(load(with_adapters, adapter, {}))), 1e-4);
    EXPECT_GT(largest_difference(served, logprobs(load(config, base, {}))), 0.01);
  }
}

TEST_F(AdapterFiles, AdaptersOfOtherSettingsThanTheBaseAreRefused) {
  const TrainConfig config = tiny_config(1);
  const std::string base = train("base", config);
  TrainConfig longer = adapted(config, base);
  longer.model.rope_max_timescale = 500'000;
  const std::vector<AdapterFolder> folders = {{"long", train("run", longer)}};
  const auto opened = open_served_adapters(folders, base, config.model);
  EXPECT_THAT(std::string(opened.status().message()),
              AllOf(HasSubstr("--adapter long="), HasSubstr("rope_max_timescale=500000"),
                    HasSubstr("and the base 10000")));
}

TEST_F(AdapterFiles, AFolderOfNeitherKindIsRefused) {
  const std::vector<AdapterFolder> folders = {{"a", folder_.file("")}};
  const auto opened = open_served_adapters(folders, folder_.file("base"), tiny_config(1).model);
  EXPECT_THAT(std::string(opened.status().message()),
              AllOf(HasSubstr("no adapter_config.json"), HasSubstr("a run with enable_lora")));
}

class IdTokenizer : public Tokenizer {
 public:
  std::string_view type() const override { return "ids"; }
  int32_t vocab_size() const override { return 256; }
  int32_t eos_id() const override { return 2; }
  std::unique_ptr<Encoder> encoder() const override { return nullptr; }

 private:
  absl::StatusOr<std::string> text_of(std::span<const int32_t>) const override { return ""; }
};

TEST(StartsOfModels, AreThoseOfEachTraining) {
  TrainConfig base = tiny_config(1);
  base.dataset_type = DatasetType::kShards;
  base.sample_begin_id = 7;
  std::vector<NamedAdapter> adapters(3);
  adapters[0].training = adapters[2].training = base;
  adapters[0].training->sample_begin_id = 9;
  adapters[2].training->sample_begin_id = -1;
  const auto starts = starts_of_models(base, IdTokenizer(), adapters);
  ASSERT_TRUE(starts.ok()) << starts.status();
  ASSERT_EQ(starts->size(), 4U);
  EXPECT_EQ((*starts)[0].id, 7);
  EXPECT_EQ((*starts)[1].id, 9);
  EXPECT_EQ((*starts)[2].id, 7);  // a folder of PEFT
  EXPECT_EQ((*starts)[3].id, 2);
  EXPECT_FALSE((*starts)[3].always);
}

}  // namespace
}  // namespace muster::trainer
