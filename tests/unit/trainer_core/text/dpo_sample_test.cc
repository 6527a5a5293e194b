// Pairs for preference tuning: texts, tokens and labels of TRL's formats, and bad input.
#include "trainer_core/text/dpo_sample.h"

#include <gmock/gmock.h>

#include <fstream>

#include <gtest/gtest.h>

#include "tests/paths.h"
#include "tests/unit/temp_folder.h"
#include "trainer_core/data/dpo_samples.h"
#include "trainer_core/data/token_dataset.h"
#include "trainer_core/text/tokenize.h"

namespace muster::trainer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string golden(const std::string& name) { return source_dir() + "/tests/golden/" + name; }

SftFormat chatml() {
  SftFormat format;
  auto chat = chat::ChatTemplate::load(
      {golden("tokenizers/llama3.json"), golden("chat/chatml.jinja"), "", "", ""});
  EXPECT_TRUE(chat.ok()) << chat.status();
  if (chat.ok()) format.chat = *std::move(chat);
  return format;
}

// Returns the text of an answer with "|" where its completion begins and ends.
std::string shown(const SftText& text) {
  EXPECT_EQ(text.spans.size(), 1U);
  if (text.spans.size() != 1) return text.text;
  std::string marked = text.text;
  marked.insert(text.spans[0].end, "|");
  marked.insert(text.spans[0].begin, "|");
  return marked;
}

std::vector<std::string> shown(const std::string& json, const SftFormat& format) {
  const auto pair = dpo_texts(json, format);
  EXPECT_TRUE(pair.ok()) << pair.status();
  if (!pair.ok()) return {};
  return {shown(pair->chosen), shown(pair->rejected)};
}

TEST(DpoSample, TextsOfAllForms) {
  const SftFormat plain;
  const auto sky = ElementsAre("The sky is| blue.|", "The sky is| green.|");
  EXPECT_THAT(
      shown(R"({"prompt": "The sky is", "chosen": " blue.", "rejected": " green."})", plain), sky);
  EXPECT_THAT(shown(R"({"chosen": "The sky is blue.", "rejected": "The sky is green."})", plain),
              sky);
  // Both begin with the first byte of the same character.
  EXPECT_THAT(shown(R"({"chosen": "aé", "rejected": "aè"})", plain), ElementsAre("a|é|", "a|è|"));
  const SftFormat chat = chatml();
  const std::string user = R"({"role": "user", "content": "Color?"})";
  const std::string blue = R"({"role": "assistant", "content": "Blue"})";
  const std::string green = R"({"role": "assistant", "content": "Green"})";
  const std::vector<std::string> wanted = shown(
      "{\"prompt\": [" + user + "], \"chosen\": [" + blue + "], \"rejected\": [" + green + "]}",
      chat);
  ASSERT_EQ(wanted.size(), 2U);
  EXPECT_THAT(wanted[0], HasSubstr("Color?"));
  EXPECT_THAT(wanted[0], HasSubstr("|Blue"));
  EXPECT_THAT(wanted[1], HasSubstr("|Green"));
  EXPECT_EQ(
      shown("{\"prompt\": " + user + ", \"chosen\": " + blue + ", \"rejected\": " + green + "}",
            chat),
      wanted);
  // Many data sets have whole conversations and repeat the first message as a text.
  EXPECT_EQ(
      shown("{\"prompt\": \"Color?\", \"messages\": [" + user + "," + blue + "], \"chosen\": [" +
                user + "," + blue + "], \"rejected\": [" + user + "," + green + "]}",
            chat),
      wanted);
  // One answer continues the other.
  EXPECT_THAT(shown(R"({"chosen": "It is", "rejected": "It is so"})", plain),
              ElementsAre("It i|s|", "It i|s so|"));
  EXPECT_THAT(shown(R"({"chosen": "aé!", "rejected": "aé"})", plain), ElementsAre("a|é!|", "a|é|"));
  const auto longer = dpo_texts("{\"chosen\": [" + user + "," + blue + "], \"rejected\": [" + user +
                                    "," + blue + "," + user + "," + green + "]}",
                                chat);
  ASSERT_TRUE(longer.ok()) << longer.status();
  EXPECT_EQ(shown(longer->chosen), wanted[0]);
  EXPECT_EQ(longer->rejected.spans.size(), 2U);
  EXPECT_EQ(
      shown("{\"chosen\": [" + user + "," + blue + "], \"rejected\": [" + user + "," + green + "]}",
            chat),
      wanted);
}

TEST(DpoSample, BadPairsNameTheField) {
  const auto message = [](const std::string& json) {
    return std::string(dpo_texts(json, SftFormat{}).status().message());
  };
  EXPECT_THAT(message("[1]"), HasSubstr("no object"));
  EXPECT_THAT(message(R"({"prompt": "a", "chosen": "b"})"), HasSubstr("no field \"rejected\""));
  EXPECT_THAT(message(R"({"prompt": "a", "chosen": "b", "rejected": "b"})"), HasSubstr("equal"));
  EXPECT_THAT(message(R"({"prompt": "a", "chosen": "b", "rejected": 3})"),
              HasSubstr("neither two texts nor two lists"));
  EXPECT_THAT(message(R"({"prompt": "a", "chosen": "b", "rejected": ""})"),
              HasSubstr("has a \"rejected\" answer that has no completion"));
  EXPECT_THAT(message(R"({"prompt": 1, "chosen": "b", "rejected": "c"})"), HasSubstr("\"prompt\""));
  EXPECT_THAT(message(R"({"prompt": "a", "chosen": "b", "rejected": "c", "weight": 0.5})"),
              HasSubstr("has the \"weight\" 0.5; pairs have no weights"));
  EXPECT_THAT(message(R"({"messages": [{"role": "user", "content": "a"}],
                          "chosen": {"role": "assistant", "content": "b"},
                          "rejected": {"role": "assistant", "content": "c"}})"),
              HasSubstr("has no \"prompt\" of messages"));
  const auto weighted = dpo_texts(R"({"prompt": [{"role": "user", "content": "a"}],
                    "chosen": [{"role": "assistant", "content": "b", "weight": 0.5}],
                    "rejected": [{"role": "assistant", "content": "c"}]})",
                                  chatml());
  EXPECT_THAT(weighted.status().message(),
              HasSubstr("has a message with the \"weight\" 0.5 in \"chosen\""));
}

// A sequence has the tokens of both texts; labels mark the targets of the answers.
TEST(DpoSample, SequencesHaveLabels) {
  const TempFolder folder;
  std::ofstream(folder.file("pairs.jsonl"))
      << R"({"prompt": "The sky is", "chosen": " blue", "rejected": " green today"})"
      << "\n"
      << R"({"prompt": "Grass is", "chosen": " green", "rejected": " blue"})"
      << "\n";
  TokenizeOptions options;
  options.inputs = {folder.file("pairs.jsonl")};
  options.tokenizer_path = golden("tokenizers/llama3.json");
  options.output_directory = folder.file("pairs");
  options.sft = options.dpo = true;
  const auto report = tokenize_files(options);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->index.documents, 2U);
  auto dataset = TokenDataset::open(options.output_directory, 1 << 20);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_TRUE((*dataset)->index().has_pairs);
  const std::shared_ptr<const TokenDataset> shared = *std::move(dataset);
  for (const bool packs : {true, false}) {
    constexpr size_t kLength = 64;
    auto made = make_dpo_samples(Corpus(shared), kLength, packs);
    ASSERT_TRUE(made.ok()) << made.status();
    EXPECT_EQ(made->samples->size(), packs ? 1U : 2U);
    EXPECT_EQ(made->counts.pairs_max, packs ? 2 : 1);
    std::vector<int32_t> tokens(kLength), targets(kLength), starts(kLength);
    std::vector<float> labels(kLength);
    ASSERT_TRUE(made->samples->read(0, {tokens, targets, starts, labels}).ok());
    // The prompt of a part is followed by its answer and the end of sequence.
    std::vector<std::pair<float, int>> runs;
    for (size_t i = 0; i < kLength; ++i) {
      const bool begins = i == 0 || starts[i] != starts[i - 1];
      if (begins || labels[i] != labels[i - 1]) runs.emplace_back(labels[i], 0);
      ++runs.back().second;
      if (labels[i] != 0) {
        EXPECT_LT(starts[i], static_cast<int>(i));
      }
    }
    ASSERT_GE(runs.size(), 5U);
    EXPECT_EQ(runs[0].first, 0);
    EXPECT_EQ(runs[1].first, 1);
    EXPECT_EQ(runs[2].first, 0);
    EXPECT_EQ(runs[3].first, -1);
    EXPECT_GT(runs[3].second, runs[1].second) << "\" green today\" has more tokens than \" blue\"";
    if (packs) {
      ASSERT_EQ(runs.size(), 9U);
      EXPECT_EQ(runs[5].first, 2);
      EXPECT_EQ(runs[7].first, -2);
    }
    EXPECT_EQ(
        tokens[0],
        tokens[static_cast<size_t>(starts[static_cast<size_t>(runs[0].second + runs[1].second)])]);
  }
  auto short_ones = make_dpo_samples(Corpus(shared), 4, true);
  ASSERT_TRUE(short_ones.ok());
  EXPECT_EQ(short_ones->samples->size(), 0U);
  EXPECT_EQ(short_ones->counts.too_long, 2U);
}

}  // namespace
}  // namespace muster::trainer
