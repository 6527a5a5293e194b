// The encodings of tiktoken's files: by hash, as stated, or refused.
#include "trainer_core/data/tiktoken.h"

#include <gmock/gmock.h>
#include <openssl/evp.h>

#include <array>
#include <string>
#include <vector>

#include <absl/strings/escaping.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_replace.h>
#include <gtest/gtest.h>

#include "trainer_core/data/split_pattern.h"

namespace muster::trainer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// A vocabulary of the 256 bytes; `gap` leaves out that id.
std::string bytes_only(int gap = -1) {
  std::string text;
  for (int byte = 0; byte < 256; ++byte) {
    const int rank = gap >= 0 && byte >= gap ? byte + 1 : byte;
    const char c = static_cast<char>(byte);
    absl::StrAppend(&text, absl::Base64Escape(absl::string_view(&c, 1)), " ", rank, "\n");
  }
  return text;
}

std::string sha256(const std::string& bytes) {
  std::array<unsigned char, 32> digest{};
  EVP_Digest(bytes.data(), bytes.size(), digest.data(), nullptr, EVP_sha256(), nullptr);
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(digest.data()), digest.size()));
}

std::vector<std::string> words(std::string_view pattern, std::string_view text) {
  const auto compiled = SplitPattern::compile(pattern);
  EXPECT_TRUE(compiled.ok()) << compiled.status();
  std::vector<std::string> pieces;
  EXPECT_TRUE((*compiled)
                  ->matcher()
                  ->split(text, [&](std::string_view piece) { pieces.emplace_back(piece); })
                  .ok());
  return pieces;
}

struct Case {
  const char* encoding;
  int gap;        // id that the stand-in leaves out; -1: none
  int32_t vocab;  // size of the stand-in's vocabulary
  int32_t eos;
  const char* eos_text;
};
constexpr Case kCases[] = {{"cl100k_base", -1, 256 + 21, 257, "<|endoftext|>"},
                           {"o200k_base", -1, 256 + 21, 257, "<|endoftext|>"},
                           {"p50k_base", 200, 257, 200, "<|endoftext|>"},
                           {"r50k_base", -1, 257, 256, "<|endoftext|>"},
                           {"gpt2", -1, 257, 256, "<|endoftext|>"},
                           {"llama3", -1, 256 + 256, 257, "<|end_of_text|>"},
                           {"qwen", -1, 256 + 208, 256, "<|endoftext|>"}};

TEST(Tiktoken, HashesNameTheEncoding) {
  for (const Case& c : kCases) {
    const std::string file = bytes_only(c.gap);
    const std::string hash = sha256(file);
    const std::string other(64, '0');
    const PublishedRanks published[] = {{other, "llama3"}, {hash, c.encoding}};
    const auto tokenizer = load_tiktoken(file, "", published);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    EXPECT_EQ((*tokenizer)->vocab_size(), c.vocab) << c.encoding;
    EXPECT_EQ((*tokenizer)->eos_id(), c.eos) << c.encoding;
    EXPECT_THAT((*tokenizer)->description(),
                absl::StrCat("tiktoken ", c.encoding, " (known by its SHA-256)"));
    // Special tokens have no text, and text of the same characters is text.
    EXPECT_EQ(*(*tokenizer)->decode(std::vector<int32_t>{c.eos}), "");
    const auto ids = (*tokenizer)->encode(c.eos_text);
    ASSERT_TRUE(ids.ok());
    EXPECT_EQ(ids->size(), std::string(c.eos_text).size());
    // Another name contradicts the hash.
    EXPECT_THAT(
        std::string(
            load_tiktoken(file, c.encoding == std::string("qwen") ? "llama3" : "qwen", published)
                .status()
                .message()),
        HasSubstr("by its SHA-256, not "));
  }
}

// Git on Windows changes the line ends of a file that it takes for text.
TEST(Tiktoken, HashesDoNotDependOnLineEnds) {
  const std::string file = bytes_only();
  const std::string hash = sha256(file);
  const PublishedRanks published[] = {{hash, "llama3"}};
  const std::string crlf = absl::StrReplaceAll(file, {{"\n", "\r\n"}});
  const auto tokenizer = load_tiktoken(crlf, "", published);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ((*tokenizer)->description(), "tiktoken llama3 (known by its SHA-256)");
  EXPECT_TRUE(looks_like_tiktoken(crlf));
}

TEST(Tiktoken, HashesDoNotDependOnWhatEditorsAdd) {
  const std::string file = bytes_only();
  const std::string without_end = file.substr(0, file.size() - 1);
  const std::string crlf = absl::StrReplaceAll(file, {{"\n", "\r\n"}});
  for (const std::string& published : {file, without_end}) {
    const std::string hash = sha256(published);
    const PublishedRanks ranks[] = {{hash, "o200k_base"}};
    for (const std::string& changed : {file, without_end, file + "\n\n", crlf, crlf + "\r\n",
                                       "\xEF\xBB\xBF" + file, "\xEF\xBB\xBF" + crlf}) {
      const auto tokenizer = load_tiktoken(changed, "", ranks);
      ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
      EXPECT_EQ((*tokenizer)->description(), "tiktoken o200k_base (known by its SHA-256)");
      EXPECT_TRUE(looks_like_tiktoken(changed));
    }
    // Another rank is another vocabulary.
    EXPECT_FALSE(load_tiktoken(absl::StrReplaceAll(file, {{"AA== 0\n", ""}}), "", ranks).ok());
  }
}

TEST(Tiktoken, UnknownFilesAreRefusedWithoutAnEncoding) {
  for (const Case& c : kCases) {
    const std::string file = bytes_only(c.gap);
    EXPECT_THAT(std::string(load_tiktoken(file, "").status().message()),
                testing::AllOf(HasSubstr("is a tiktoken file of an unknown encoding (SHA-256 "),
                               HasSubstr("--encoding"), HasSubstr(c.encoding)));
    const auto stated = load_tiktoken(file, c.encoding);
    ASSERT_TRUE(stated.ok()) << stated.status();
    EXPECT_EQ((*stated)->description(), absl::StrCat("tiktoken ", c.encoding, " (as stated)"));
  }
  EXPECT_THAT(std::string(load_tiktoken(bytes_only(), "p50k").status().message()),
              HasSubstr("cannot have the encoding \"p50k\"; the known ones are cl100k_base"));
  EXPECT_THAT(std::string(load_tiktoken(bytes_only(), "p50k_base").status().message()),
              HasSubstr("has no gap in its ranks"));
  EXPECT_THAT(std::string(load_tiktoken(bytes_only(7), "cl100k_base").status().message()),
              HasSubstr("line 8 has rank 8; 7 is next"));
}

// Another vocabulary of that size is not Qwen's.
TEST(Tiktoken, TheNumberOfRanksNamesNoEncoding) {
  std::string file = bytes_only();
  for (int rank = 256; rank < 151'643; ++rank) {
    absl::StrAppend(&file, absl::Base64Escape(absl::StrCat("token ", rank)), " ", rank, "\n");
  }
  EXPECT_THAT(std::string(load_tiktoken(file, "").status().message()),
              HasSubstr("is a tiktoken file of an unknown encoding (SHA-256 "));
}

TEST(Tiktoken, PublishedHashesAreThoseOfTheirPrograms) {
  std::string all;
  for (const PublishedRanks& file : published_ranks()) {
    EXPECT_EQ(file.sha256.size(), 64U);
    absl::StrAppend(&all, std::string(file.encoding), " ");
  }
  EXPECT_EQ(all, "cl100k_base o200k_base p50k_base r50k_base llama3 qwen ");
}

// One text on which the patterns differ: camel case, digits, contractions, slashes, blanks.
TEST(Tiktoken, PatternsSplitAsTheirProgramsDo) {
  constexpr char kText[] = "helloWorld it'S 12345 a//\n  b\n\n c ";
  EXPECT_THAT(words(kO200kPattern, kText), ElementsAre("hello", "World", " it'S", " ", "123", "45",
                                                       " a", "//\n", " ", " b", "\n\n", " c", " "));
  EXPECT_THAT(words(kCl100kPattern, kText),
              ElementsAre("helloWorld", " it", "'S", " ", "123", "45", " a", "//\n", " ", " b",
                          "\n\n", " c", " "));
  EXPECT_THAT(words(kLlama3Pattern, kText),
              ElementsAre("helloWorld", " it", "'S", " ", "123", "45", " a", "//\n", " ", " b",
                          "\n\n", " c", " "));
  EXPECT_THAT(words(kQwenPattern, kText),
              ElementsAre("helloWorld", " it", "'S", " ", "1", "2", "3", "4", "5", " a", "//\n",
                          " ", " b", "\n\n", " c", " "));
  EXPECT_THAT(words(kR50kPattern, kText), ElementsAre("helloWorld", " it", "'", "S", " 12345", " a",
                                                      "//", "\n ", " b", "\n\n", " c", " "));
}

}  // namespace
}  // namespace muster::trainer
