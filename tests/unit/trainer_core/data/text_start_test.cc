// The token before texts, by the files beside a tokenizer. tests/e2e/test_text_start.py compares it
// with transformers.
#include "trainer_core/data/text_start.h"

#include <gmock/gmock.h>

#include <filesystem>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/paths.h"
#include "tests/unit/temp_folder.h"

namespace muster::trainer {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;

const std::string kTokenizers = source_dir() + "/tests/golden/tokenizers/";
const std::string kSentencePiece = source_dir() + "/tests/fuzz/seeds/sentencepiece/bpe.model";
constexpr int32_t kBegin = 665, kEnd = 666;  // llama3.json

// A folder with llama3.json and a post-processor, a SentencePiece model, or a tiktoken file.
class TextStartTest : public testing::Test {
 protected:
  void add_json(const json& post_processor) {
    json tokenizer = json::parse(read_file(kTokenizers + "llama3.json"));
    tokenizer["post_processor"] = post_processor;
    write_file(folder_.file("tokenizer.json"), tokenizer.dump());
  }
  void add_sentence_piece() { fs::copy(kSentencePiece, folder_.file("tokenizer.model")); }
  void add_config(const std::string& text) {
    write_file(folder_.file("tokenizer_config.json"), text);
  }
  absl::StatusOr<TextStart> start_of(const std::string& name, const std::string& encoding = "") {
    const auto tokenizer = Tokenizer::load(folder_.file(name), encoding);
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
    return expected_text_start(config_, **tokenizer);
  }
  void expect(const std::string& name, int32_t id, bool always) {
    const auto start = start_of(name);
    ASSERT_TRUE(start.ok()) << start.status();
    EXPECT_EQ(start->id, id);
    EXPECT_EQ(start->always, always);
  }

  TempFolder folder_;
  TrainConfig config_;
};

const json kTemplate = json::parse(R"({"type": "Sequence", "processors": [{"type": "ByteLevel"},
    {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<|begin_of_text|>"}},
     {"Sequence": {"id": "A"}}], "special_tokens": {"<|begin_of_text|>": {"ids": [665]}}}]})");

TEST_F(TextStartTest, ThePostProcessorDecides) {
  add_json(kTemplate);
  expect("tokenizer.json", kBegin, true);
  add_config(R"({"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<|end_of_text|>"})");
  expect("tokenizer.json", kBegin, true);
  add_json(nullptr);
  add_config(R"({"tokenizer_class": "GPT2Tokenizer", "bos_token": "<|begin_of_text|>"})");
  expect("tokenizer.json", kBegin, false);
  add_config(R"({"tokenizer_class": "Qwen2Tokenizer", "bos_token": null})");
  expect("tokenizer.json", kEnd, false);
}

TEST_F(TextStartTest, TheClassOfLlamaDecides) {
  add_sentence_piece();
  const auto tokenizer = Tokenizer::load(folder_.file("tokenizer.model"));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const int32_t bos = (*tokenizer)->bos_id(), eos = (*tokenizer)->eos_id();
  ASSERT_GE(bos, 0);
  expect("tokenizer.model", bos, true);
  add_config(R"({"tokenizer_class": "LlamaTokenizer", "bos_token": {"content": "<s>"}})");
  expect("tokenizer.model", bos, true);
  add_config(
      R"({"tokenizer_class": "LlamaTokenizer", "add_bos_token": false, "bos_token": "<s>"})");
  expect("tokenizer.model", bos, false);
  add_config(
      R"({"tokenizer_class": "LlamaTokenizer", "add_bos_token": true, "bos_token": "</s>"})");
  expect("tokenizer.model", eos, true);
  // The class has precedence over a post-processor.
  add_json(kTemplate);
  add_config(
      R"({"tokenizer_class": "LlamaTokenizerFast", "add_bos_token": false, "bos_token": "<s>"})");
  expect("tokenizer.model", bos, false);
}

TEST_F(TextStartTest, Llama3IsTheTiktokenEncodingWithABeginToken) {
  for (const char* const name : {"llama3", "qwen", "cl100k_base"}) {
    fs::copy(kTokenizers + name + ".tiktoken", folder_.file(name));
    const auto start = start_of(name, name);
    ASSERT_TRUE(start.ok()) << start.status();
    EXPECT_EQ(start->always, std::string(name) == "llama3") << name;
    EXPECT_EQ(start->id, name == std::string("cl100k_base") ? kEnd : kBegin);
  }
}

TEST_F(TextStartTest, DocumentsOfShardsBeginWithTheirOwnToken) {
  config_.dataset_type = DatasetType::kShards;
  add_json(kTemplate);
  expect("tokenizer.json", kEnd, false);
}

TEST_F(TextStartTest, SamplesBeginWithTheTokenOfTheirIndex) {
  config_.dataset_type = DatasetType::kShards;
  config_.sample_begin_id = kBegin;
  add_json(nullptr);
  expect("tokenizer.json", kBegin, true);
}

// The token stands in special_tokens_map.json, or is the default of the class or of the template.
TEST_F(TextStartTest, TheTokenIsFoundWithoutTokenizerConfig) {
  add_json(nullptr);
  add_config(R"({"tokenizer_class": "LlamaTokenizer"})");
  write_file(folder_.file("special_tokens_map.json"), R"({"bos_token": "<|begin_of_text|>"})");
  expect("tokenizer.json", kBegin, true);
  fs::remove(folder_.file("special_tokens_map.json"));
  add_json(kTemplate);
  expect("tokenizer.json", kBegin, true);
  json named = json::parse(read_file(folder_.file("tokenizer.json")));
  named["post_processor"] = nullptr;
  for (json& token : named["added_tokens"])
    if (token["id"] == kBegin) token["content"] = "<bos>";
  write_file(folder_.file("tokenizer.json"), named.dump());
  add_config(R"({"tokenizer_class": "GemmaTokenizerFast"})");
  expect("tokenizer.json", kBegin, true);
}

TEST_F(TextStartTest, ADamagedTokenizerJsonBesideAModelIsNotUsed) {
  add_sentence_piece();
  write_file(folder_.file("tokenizer.json"), "{");
  add_config(R"({"bos_token": "</s>"})");
  const auto start = start_of("tokenizer.model");
  ASSERT_TRUE(start.ok()) << start.status();
  EXPECT_TRUE(start->always);
}

TEST_F(TextStartTest, DamagedFilesAreErrors) {
  add_json(kTemplate);
  // An unknown token is an error only if texts begin with it.
  add_config(R"({"bos_token": "<none of it>"})");
  expect("tokenizer.json", kBegin, true);
  add_config(R"({"tokenizer_class": "LlamaTokenizer", "add_bos_token": false,
                 "bos_token": "<none of it>"})");
  expect("tokenizer.json", kEnd, false);
  add_config(R"({"tokenizer_class": "LlamaTokenizer", "bos_token": "<none of it>"})");
  EXPECT_THAT(std::string(start_of("tokenizer.json").status().message()),
              HasSubstr("tokenizer_config.json: bos_token is \"<none of it>\", which is no token"));
  fs::remove(folder_.file("tokenizer_config.json"));
  json beyond = kTemplate;
  beyond["processors"][1]["special_tokens"]["<|begin_of_text|>"]["ids"] = {9999};
  add_json(beyond);
  EXPECT_THAT(std::string(start_of("tokenizer.json").status().message()),
              HasSubstr("tokenizer.json: post_processor adds the token id 9999; the vocabulary"));
  fs::remove(folder_.file("tokenizer.json"));
  add_sentence_piece();
  add_config("{\"bos_token\":");
  EXPECT_THAT(std::string(start_of("tokenizer.model").status().message()),
              HasSubstr("tokenizer_config.json is not JSON"));
}

}  // namespace
}  // namespace muster::trainer
