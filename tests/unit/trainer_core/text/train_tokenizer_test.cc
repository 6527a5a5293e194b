#include "trainer_core/text/train_tokenizer.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/trainer_core/text/tokenize_fixture.h"
#include "trainer_core/data/tokenizer.h"

namespace muster::trainer {
namespace {

using testing::HasSubstr;

class TrainTokenizer : public TokenizeFixture {};

TEST_F(TrainTokenizer, TrainingIsReproducibleAndExplainsAVocabularyThatIsTooLarge) {
  TrainTokenizerOptions again{.input = folder_->file("text.txt"),
                              .vocab_size = kVocab,
                              .output = folder_->file("t2.model")};
  const auto second = train_tokenizer(again);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(read_file(folder_->file("t.model")), read_file(folder_->file("t2.model")));
  again.vocab_size = 50'000;
  again.output = folder_->file("none.model");
  const auto status = train_tokenizer(again).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("<="));
  EXPECT_FALSE(std::filesystem::exists(again.output));
  again.vocab_size = 256;
  const auto small = train_tokenizer(again).status();
  EXPECT_EQ(small.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(small.message()),
              testing::ContainsRegex("vocab_size must be at least [0-9]+ for this text$"));
}

// Progress is parsed from the library's log: this test fails if a new version no longer logs it.
TEST_F(TrainTokenizer, TrainingReportsEachPhaseAndItsProgress) {
  using Phase = TrainTokenizerProgress::Phase;
  std::vector<TrainTokenizerProgress> reports;
  const auto trained =
      train_tokenizer({.input = folder_->file("text.txt"),
                       .vocab_size = kVocab,
                       .output = folder_->file("t3.model")},
                      [&](const TrainTokenizerProgress& at) { reports.push_back(at); });
  ASSERT_TRUE(trained.ok()) << trained.status();
  ASSERT_FALSE(reports.empty());
  EXPECT_EQ(reports.front().phase, Phase::kCounting) << "3000 lines are read at once";
  const TrainTokenizerProgress& last = reports.back();
  EXPECT_EQ(last.phase, Phase::kMerging);
  EXPECT_LE(last.done, last.total);
  EXPECT_GT(last.done + 20, last.total) << "every 20 merges are one report";
  for (size_t i = 1; i < reports.size(); ++i) {
    EXPECT_GE(reports[i].phase, reports[i - 1].phase);
    EXPECT_TRUE(reports[i].phase > reports[i - 1].phase || reports[i].done > reports[i - 1].done)
        << i;
  }
}

TEST_F(TrainTokenizer, FewerPiecesAreMadeOnlyIfAllowed) {
  const auto trained = train_tokenizer({.input = folder_->file("text.txt"),
                                        .vocab_size = 50'000,
                                        .fewer_ok = true,
                                        .output = folder_->file("t4.model")});
  ASSERT_TRUE(trained.ok()) << trained.status();
  EXPECT_GT(trained->vocab_size, kVocab);
  EXPECT_LT(trained->vocab_size, 5'000);
  const auto tokenizer = Tokenizer::load(folder_->file("t4.model"));
  ASSERT_TRUE(tokenizer.ok());
  EXPECT_EQ((*tokenizer)->vocab_size(), trained->vocab_size);
}

TEST_F(TrainTokenizer, DecodeRefusesForeignIds) {
  auto tokenizer = Tokenizer::load(folder_->file("t.model"));
  ASSERT_TRUE(tokenizer.ok());
  EXPECT_FALSE((*tokenizer)->decode(std::vector<int32_t>{-1}).ok());
  EXPECT_FALSE((*tokenizer)->decode(std::vector<int32_t>{kVocab}).ok());
  // The text has no such characters, so they are encoded as bytes.
  const std::string odd = "naïve 世界 \xF0\x9F\x8C\x8D";
  EXPECT_EQ(*(*tokenizer)->decode(*(*tokenizer)->encode(odd)), odd);
}

}  // namespace
}  // namespace muster::trainer
