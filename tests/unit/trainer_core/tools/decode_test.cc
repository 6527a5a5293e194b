// Text of trained models.
#include "trainer_core/tools/decode.h"

#include <gmock/gmock.h>

#include <gtest/gtest.h>

#include "tests/unit/temp_folder.h"
#include "tests/unit/trainer_core/train_helpers.h"
#include "trainer_core/checkpoint/find_checkpoint.h"

namespace muster::trainer {
namespace {

using testing::Each;
using testing::HasSubstr;
using testing::StartsWith;

class Decode : public testing::Test {
 protected:
  void SetUp() override { make_text_dataset(folder_.path()); }

  TrainConfig config(const std::string& checkpoints, int ranks = 2) const {
    TrainConfig config = tiny_config(ranks);
    config.model.vocab_size = kTextVocab;
    config.dataset_type = DatasetType::kShards;
    config.dataset_path = folder_.file("data");
    config.tokenizer_path = folder_.file("t.model");
    config.enable_checkpointing = true;
    config.checkpoint_directory = folder_.file(checkpoints);
    return config;
  }

  TempFolder folder_;
};

TEST_F(Decode, ContinuesAPrompt) {
  TrainConfig longer = config("decode");
  longer.steps = longer.optimizer.schedule_steps = 80;
  longer.optimizer.learning_rate = 1e-2;
  longer.max_target_length = 32;
  longer.checkpoint_period = 80;
  ASSERT_THAT(run(longer).codes, Each(ExitCode::kOk));
  const auto checkpoint = find_checkpoint(longer.checkpoint_directory);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  DecodeOptions options;
  options.checkpoint = *checkpoint;
  options.prompts = {"And it came to"};
  options.max_tokens = 40;
  const auto text = decode(longer, options);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_THAT(text->at(0), StartsWith(" pass in the year"));
  EXPECT_EQ(*decode(longer, options), *text);
  // Several prompts are computed together, and the pieces are the text.
  std::vector<std::string> pieces(3);
  options.on_text = [&](size_t prompt, std::string_view piece) { pieces[prompt] += piece; };
  options.prompts = {"And", "And it came to", "pass in"};
  const auto texts = decode(longer, options);
  ASSERT_TRUE(texts.ok()) << texts.status();
  EXPECT_EQ(texts->at(1), text->at(0));
  EXPECT_EQ(*texts, pieces);
  options.stops = {" year"};
  EXPECT_EQ(decode(longer, options)->at(1), " pass in the");
  options.max_tokens = 0;
  EXPECT_FALSE(decode(longer, options).ok());
  EXPECT_EQ(find_checkpoint(folder_.file("data")).status().code(), absl::StatusCode::kNotFound);
}

// Nearly untrained and sampled almost uniformly: three of four tokens would be outside the
// tokenizer.
TEST_F(Decode, NeverDecodesPaddingIds) {
  TrainConfig padded = config("padded", 1);
  padded.model.vocab_size = 4 * kTextVocab;
  padded.steps = 5;
  const RunResult result = run(padded);
  ASSERT_THAT(result.codes, Each(ExitCode::kOk)) << result.err;
  DecodeOptions options;
  options.checkpoint = padded.checkpoint_directory + "/5";
  options.prompts = {"And"};
  options.max_tokens = 100;
  for (const double temperature : {0.0, 50.0}) {
    options.sampling = {.temperature = temperature, .seed = 3};
    const auto text = decode(padded, options);
    EXPECT_TRUE(text.ok()) << text.status();
  }
}

// A model with learned positions has a limited number of them: the text ends there.
TEST_F(Decode, EndsWithTheLearnedPositions) {
  TrainConfig gpt = config("gpt", 1);
  gpt.model.position_type = PositionType::kLearned;
  gpt.model.norm_type = NormType::kLayer;
  gpt.model.trainable_position_size = gpt.max_target_length;
  ASSERT_THAT(run(gpt).codes, Each(ExitCode::kOk)) << run(gpt).err;
  const auto checkpoint = find_checkpoint(gpt.checkpoint_directory);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  DecodeOptions options;
  options.checkpoint = *checkpoint;
  options.prompts = {"And"};
  options.max_tokens = 100;
  const auto text = decode(gpt, options);
  ASSERT_TRUE(text.ok()) << text.status();
  options.max_tokens = 17;  // there are 16 positions
  EXPECT_EQ(*decode(gpt, options), *text);
  options.prompts = {std::string(200, 'x')};
  EXPECT_THAT(std::string(decode(gpt, options).status().message()),
              HasSubstr("learned positions for 16"));
}

}  // namespace
}  // namespace muster::trainer
