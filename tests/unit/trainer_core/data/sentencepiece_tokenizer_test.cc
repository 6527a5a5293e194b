#include "trainer_core/data/sentencepiece_tokenizer.h"

#include <random>
#include <string>
#include <unordered_map>
#include <vector>

#include <gtest/gtest.h>

#include "trainer_core/data/sentencepiece_model.h"
#include "trainer_core/data/sentencepiece_words.h"

namespace muster::trainer {
namespace {

using Arguments = std::unordered_map<std::string, std::string>;

// The building blocks of texts: words, blanks, characters that normalization changes or joins, and
// bytes that are not UTF-8.
const std::vector<std::string>& atoms() {
  static const std::vector<std::string> all = {"the",
                                               "of",
                                               "beginning",
                                               "a",
                                               "b",
                                               "tokens",
                                               "internationalisation",
                                               "x1",
                                               ".",
                                               ",",
                                               "\xE2\x96\x81",
                                               "é",
                                               "e\xCC\x81",
                                               "\xCC\x81",
                                               "ﬁ",
                                               "世界",
                                               "　",
                                               "\xC2\xA0",
                                               "½",
                                               "🌍",
                                               " ",
                                               " ",
                                               " ",
                                               " ",
                                               "  ",
                                               "   ",
                                               "\n",
                                               "\t",
                                               "\xFF",
                                               "<s>",
                                               "<mark>"};
  return all;
}

std::string random_text(std::mt19937& random, size_t atoms_max) {
  std::string text;
  for (size_t left = random() % (atoms_max + 1); left > 0; --left)
    text += atoms()[random() % atoms().size()];
  return text;
}

std::string trained_model(const Arguments& more) {
  Arguments arguments = {{"vocab_size", "420"},
                         {"model_type", "bpe"},
                         {"byte_fallback", "true"},
                         {"hard_vocab_limit", "false"},
                         {"minloglevel", "2"},
                         {"normalization_rule_name", "identity"},
                         {"remove_extra_whitespaces", "false"}};
  for (const auto& [name, value] : more) arguments[name] = value;
  std::mt19937 random(1);
  int sentences = 0;
  std::string model;
  const std::string error = train_sentencepiece(
      arguments,
      [&](std::string& sentence) {
        sentence = "in the beginning of the internationalisation " + random_text(random, 12);
        std::erase(sentence, '\n');
        return ++sentences <= 400;
      },
      [](std::string_view) {}, model);
  EXPECT_EQ(error, "");
  return model;
}

struct Case {
  const char* name;
  Arguments arguments;
  WordIndependence independence;
};

std::vector<Case> cases() {
  return {
      {"Llama", {{"split_digits", "true"}}, WordIndependence::kAll},
      {"ExtraBlanksGo", {{"remove_extra_whitespaces", "true"}}, WordIndependence::kAll},
      {"Nfkc",
       {{"normalization_rule_name", "nmt_nfkc"}, {"remove_extra_whitespaces", "true"}},
       WordIndependence::kAscii},
      {"FoldedCase", {{"normalization_rule_name", "nfkc_cf"}}, WordIndependence::kAscii},
      {"Unknown",
       {{"byte_fallback", "false"}, {"character_coverage", "0.98"}},
       WordIndependence::kAll},
      {"Marks", {{"user_defined_symbols", "<mark>"}}, WordIndependence::kAll},
      {"PiecesAcrossWords", {{"split_by_whitespace", "false"}}, WordIndependence::kNone},
      {"BlankBehind", {{"treat_whitespace_as_suffix", "true"}}, WordIndependence::kNone},
      {"NoBlankInFront", {{"add_dummy_prefix", "false"}}, WordIndependence::kNone},
      {"Unigram", {{"model_type", "unigram"}, {"vocab_size", "300"}}, WordIndependence::kNone},
  };
}

class SentencePieceTokenizerTest : public testing::TestWithParam<Case> {};

TEST_P(SentencePieceTokenizerTest, WordsGiveTheTokensOfTheWholeText) {
  const std::string bytes = trained_model(GetParam().arguments);
  ASSERT_EQ(word_independence(bytes), GetParam().independence);
  const auto library = SentencePieceModel::parse(bytes);
  ASSERT_NE(library, nullptr);
  const auto tokenizer = load_sentencepiece(bytes);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const auto encoder = (*tokenizer)->encoder();
  std::mt19937 random(2);
  for (int i = 0; i < 4000; ++i) {
    const std::string text = random_text(random, 14);
    std::vector<int32_t> expected, ids;
    ASSERT_EQ(library->encode(text, expected), "");
    ASSERT_TRUE(encoder->append(text, ids).ok());
    ASSERT_EQ(ids, expected) << "\"" << text << "\"";
  }
}

INSTANTIATE_TEST_SUITE_P(Models, SentencePieceTokenizerTest, testing::ValuesIn(cases()),
                         [](const auto& model) { return std::string(model.param.name); });

TEST(WordIndependence, ADamagedModelHasNone) {
  EXPECT_EQ(word_independence(""), WordIndependence::kNone);
  EXPECT_EQ(word_independence("\x0a\xff\xff\xff\xff\xff"), WordIndependence::kNone);
}

}  // namespace
}  // namespace muster::trainer
