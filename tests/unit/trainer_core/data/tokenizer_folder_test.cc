// A folder stands for the first of its tokenizer files that can be used.
#include <gmock/gmock.h>

#include <filesystem>

#include <gtest/gtest.h>

#include "tests/paths.h"
#include "tests/unit/temp_folder.h"
#include "trainer_core/data/tokenizer.h"

namespace muster::trainer {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const std::string kGolden = source_dir() + "/tests/golden/tokenizers/";
const std::string kModel = source_dir() + "/tests/fuzz/seeds/sentencepiece/bpe.model";

std::string error_of(const std::string& path, const std::string& encoding = "") {
  const auto tokenizer = Tokenizer::load(path, encoding);
  return tokenizer.ok() ? "" : std::string(tokenizer.status().message());
}

// Each member of the kind: a tokenizer.json that cannot be used, beside a model that can.
TEST(TokenizerFolder, TakesTheModelBesideAnUnusableJson) {
  const std::string kUnusable[] = {
      R"({"model": {"type": "BPE", "byte_fallback": true, "vocab": {}, "merges": []}})",
      R"({"model": {"type": "Unigram", "vocab": []}})",
      R"({"model": {"type": "WordPiece", "vocab": {}}})",
      R"({"normalizer": {"type": "Lowercase"}, "model": {"type": "BPE", "vocab": {}, "merges": []}})",
      "{\"truncated\": ",
      "version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 3\n",
      "<!DOCTYPE html>",
      "",
  };
  for (const std::string& bytes : kUnusable) {
    const TempFolder folder;
    write_file(folder.file("tokenizer.json"), bytes);
    const std::string alone = error_of(folder.path());
    EXPECT_THAT(alone, HasSubstr("tokenizer.json")) << bytes;
    fs::copy(kModel, folder.file("tokenizer.model"));
    const auto tokenizer = Tokenizer::load(folder.path());
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    EXPECT_EQ((*tokenizer)->file(), folder.file("tokenizer.model"));
    EXPECT_THAT((*tokenizer)->notes(),
                ElementsAre(testing::AllOf(HasSubstr(alone),
                                           HasSubstr("/tokenizer.model is used in its place"))));
    // Named directly, it is an error that names the model.
    EXPECT_THAT(error_of(folder.file("tokenizer.json")),
                HasSubstr("tokenizer.model beside it can be used: name it, or the folder"));
  }
}

TEST(TokenizerFolder, AUsableJsonComesFirst) {
  const TempFolder folder;
  fs::copy(kGolden + "llama3.json", folder.file("tokenizer.json"));
  fs::copy(kModel, folder.file("tokenizer.model"));
  const auto tokenizer = Tokenizer::load(folder.path());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ((*tokenizer)->type(), "huggingface");
  EXPECT_THAT((*tokenizer)->notes(), IsEmpty());
}

TEST(TokenizerFolder, FindsOtherNamesAndNamesWhatCannotBeRead) {
  for (const char* name : {"tokenizer.model", "spiece.model", "sentencepiece.bpe.model",
                           "original/tokenizer.model", "sentencepiece.model"}) {
    const TempFolder folder;
    fs::create_directories(fs::path(folder.file(name)).parent_path());
    fs::copy(kModel, folder.file(name));
    EXPECT_EQ(error_of(folder.path()), "") << name;
  }
  const TempFolder folder;
  EXPECT_THAT(error_of(folder.path()), HasSubstr("has neither a tokenizer.json nor"));
  write_file(folder.file("vocab.json"), "{}");
  write_file(folder.file("merges.txt"), "");
  EXPECT_THAT(error_of(folder.path()), HasSubstr("vocab.json and merges.txt alone are not read"));
  fs::copy(kGolden + "cl100k_base.tiktoken", folder.file("cl100k_base.tiktoken"));
  EXPECT_THAT(error_of(folder.path()), HasSubstr("is a tiktoken file of an unknown encoding"));
  EXPECT_EQ(error_of(folder.path(), "cl100k_base"), "");
  EXPECT_THAT(error_of(kModel, "cl100k_base"), HasSubstr("is not a tiktoken file, and only such"));
  fs::create_symlink("../../blobs/12", folder.file("tokenizer.json"));
  fs::remove(folder.file("cl100k_base.tiktoken"));
  EXPECT_THAT(error_of(folder.path()), HasSubstr("a symbolic link to ../../blobs/12"));
}

// Programs store ranks under any name; of several files only one is used.
TEST(TokenizerFolder, FindsRanksUnderAnyName) {
  for (const char* name : {"o200k_base", "cl100k", "9b5ad71b2ce5302211f9c61530b329a4922fc6a4",
                           "ranks.txt", "vocab.bpe", "x.tiktoken"}) {
    const TempFolder folder;
    write_file(folder.file("README.md"), "no ranks\n");
    write_file(folder.file("LICENSE"), "");
    fs::copy(kGolden + "cl100k_base.tiktoken", folder.file(name));
    EXPECT_THAT(error_of(folder.path()), HasSubstr("is a tiktoken file of an unknown encoding"))
        << name;
    const auto tokenizer = Tokenizer::load(folder.path(), "cl100k_base");
    ASSERT_TRUE(tokenizer.ok()) << name << ": " << tokenizer.status();
    EXPECT_THAT((*tokenizer)->notes(), IsEmpty());
    fs::copy(kGolden + "llama3.tiktoken", folder.file("z.tiktoken"));
    const auto first = Tokenizer::load(folder.path(), "cl100k_base");
    ASSERT_TRUE(first.ok()) << first.status();
    EXPECT_THAT((*first)->notes(),
                ElementsAre(HasSubstr("not used are the other tiktoken files: ")));
  }
}

// The token that ends each document comes from tokenizer_config.json: a broken one is no default.
TEST(TokenizerFolder, ABrokenTokenizerConfigIsAnError) {
  struct Case {
    const char* bytes;
    const char* expected;  // "": usable
  };
  const Case cases[] = {
      {"version https://git-lfs.github.com/spec/v1\r\noid sha256:12\r\nsize 3\r\n",
       "tokenizer_config.json: this is a Git LFS pointer"},
      {"{\"eos_token\":", "tokenizer_config.json is not JSON"},
      {"", "tokenizer_config.json: this file is empty"},
      {"{\"eos_token\": \"<none of it>\"}",
       "eos_token is \"<none of it>\", which is no token of the vocabulary"},
      {"{\"eos_token\": {\"content\": 7}}", "eos_token is 7, which is no token"},
      {"{\"eos_token\": null}", ""},
      {"{}", ""},
      {"\xEF\xBB\xBF{\"model_max_length\": 8}", ""},
  };
  for (const Case& one : cases) {
    const TempFolder folder;
    fs::copy(kGolden + "llama3.json", folder.file("tokenizer.json"));
    write_file(folder.file("tokenizer_config.json"), one.bytes);
    EXPECT_THAT(error_of(folder.path()), HasSubstr(one.expected)) << one.bytes;
    EXPECT_EQ(error_of(folder.path()).empty(), *one.expected == '\0') << one.bytes;
  }
  const TempFolder folder;
  fs::copy(kGolden + "llama3.json", folder.file("tokenizer.json"));
  fs::create_symlink("../blobs/12", folder.file("tokenizer_config.json"));
  EXPECT_THAT(error_of(folder.path()), HasSubstr("a symbolic link to ../blobs/12"));
}

TEST(TokenizerFolder, MarksAndLineEndsOfOtherSystemsDoNotMatter) {
  const TempFolder folder;
  write_file(folder.file("tokenizer.json"), "\xEF\xBB\xBF" + read_file(kGolden + "llama3.json"));
  EXPECT_EQ(error_of(folder.path()), "");
  std::string ranks = read_file(kGolden + "llama3.tiktoken");
  for (size_t at = ranks.find('\n'); at != ranks.npos; at = ranks.find('\n', at + 2))
    ranks.insert(at, "\r");
  write_file(folder.file("crlf.tiktoken"), ranks);
  EXPECT_THAT(error_of(folder.file("crlf.tiktoken")), HasSubstr("of an unknown encoding"));
  const auto loaded = Tokenizer::load(folder.file("crlf.tiktoken"), "llama3");
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(*(*loaded)->encode("The ranks"),
            *(*Tokenizer::load(kGolden + "llama3.tiktoken", "llama3"))->encode("The ranks"));
}

TEST(TokenizerFolder, NamesEachFileThatCannotBeUsed) {
  const TempFolder folder;
  write_file(folder.file("tokenizer.json"), R"({"model": {"type": "WordPiece", "vocab": {}}})");
  write_file(folder.file("tokenizer.model"),
             "version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 3\n");
  EXPECT_THAT(error_of(folder.path()),
              testing::AllOf(HasSubstr("tokenizer.json cannot be used: model.type is WordPiece"),
                             HasSubstr("tokenizer.model: this is a Git LFS pointer")));
}

// Two encodings of one file are two tokenizers.
TEST(TokenizerFolder, AStatedEncodingIsPartOfTheFingerprint) {
  const auto load = [](const std::string& encoding) {
    return (*Tokenizer::load(kGolden + "cl100k_base.tiktoken", encoding))->fingerprint();
  };
  EXPECT_EQ(load("cl100k_base"), load("cl100k_base"));
  EXPECT_NE(load("cl100k_base"), load("o200k_base"));
}

}  // namespace
}  // namespace muster::trainer
