#include "trainer_core/data/sentencepiece_check.h"

#include <gmock/gmock.h>

#include <cstdint>
#include <cstring>
#include <string>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

#include "tests/paths.h"
#include "tests/unit/temp_folder.h"
#include "trainer_core/data/sentencepiece_tokenizer.h"

namespace muster::trainer {
namespace {

using testing::HasSubstr;

std::string seed(const std::string& name) {
  return read_file(absl::StrCat(source_dir(), "/tests/fuzz/seeds/sentencepiece/", name));
}

std::string message(const std::string& model) {
  const auto status = load_sentencepiece(model).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  return std::string(status.message());
}

TEST(SentencePieceCheck, ModelsOfAllKindsPass) {
  for (const std::string name : {"bpe.model", "unigram.model", "char.model", "word.model"}) {
    const auto status = check_sentencepiece(seed(name));
    EXPECT_TRUE(status.ok()) << name << ": " << status;
  }
}

// unigram.model has its own rules: a trie of one block of 256 units, then the strings.
class Charsmap : public testing::Test {
 protected:
  static constexpr uint32_t kTrieBytes = 1024;

  void SetUp() override {
    const std::string begins("\x00\x04\x00\x00", 4);  // kTrieBytes
    trie_ = model_.find(begins) + begins.size();
    ASSERT_NE(trie_, begins.size() + std::string::npos);
  }
  uint32_t unit(size_t i) const {
    uint32_t unit = 0;
    std::memcpy(&unit, &model_[trie_ + 4 * i], sizeof(unit));
    return unit;
  }
  std::string with_unit(size_t i, uint32_t unit) const {
    std::string model = model_;
    std::memcpy(&model[trie_ + 4 * i], &unit, sizeof(unit));
    return model;
  }

  const std::string model_ = seed("unigram.model");
  size_t trie_ = 0;
};

TEST_F(Charsmap, UnitsOutsideTheTrieAreRefused) {
  size_t leading = 0;
  for (size_t i = 0; i < kTrieBytes / 4; ++i) {
    if (unit(i) >> 31 != 0) continue;
    ++leading;
    EXPECT_THAT(
        message(with_unit(i, (unit(i) & 0x1FF) | 1U << 20)),
        HasSubstr(absl::StrCat("normalizer_spec.precompiled_charsmap has a trie whose unit ", i,
                               " leads out of it")));
    EXPECT_THAT(message(with_unit(i, 0x7FFF'FFFF & ~uint32_t{0x100})), HasSubstr("leads out"));
  }
  EXPECT_GT(leading, 200U);
  EXPECT_THAT(message(with_unit(0, unit(0) | 1U << 31)), HasSubstr("unit 0 leads out"))
      << "whose kind no caller requests";
}

TEST_F(Charsmap, StringsFollowTheTrie) {
  size_t values = 0;
  for (size_t i = 0; i < kTrieBytes / 4; ++i) {
    if (unit(i) >> 31 == 0 || unit(i) == 1U << 31) continue;  // the first string is at byte 0
    ++values;
    EXPECT_THAT(message(with_unit(i, unit(i) | 1U << 20)), HasSubstr("has its string at byte"));
  }
  EXPECT_GT(values, 2U);
}

TEST_F(Charsmap, WrongSizesAreRefused) {
  const auto with_bytes = [&](uint32_t bytes) {
    std::string model = model_;
    std::memcpy(&model[trie_ - 4], &bytes, sizeof(bytes));
    return model;
  };
  for (const uint32_t bytes : {0U, 4U, 1023U, 2048U, ~0U})
    EXPECT_THAT(message(with_bytes(bytes)), HasSubstr(absl::StrCat("a trie of ", bytes, " bytes")));
}

TEST(SentencePieceCheck, PiecesAreValidText) {
  const std::string good = seed("bpe.model");
  const size_t at = good.find("\n\x05<unk>");  // field 1 of the first piece
  ASSERT_NE(at, std::string::npos);
  const auto with = [&](char byte) {
    std::string model = good;
    model[at + 3] = byte;
    return model;
  };
  EXPECT_THAT(message(with('\0')), HasSubstr("piece 0 has a NUL in it"));
  EXPECT_THAT(message(with('\xFF')), HasSubstr("piece 0 is no UTF-8"));
  EXPECT_THAT(message(good.substr(0, good.size() - 1)), HasSubstr("is no message from byte"));
}

}  // namespace
}  // namespace muster::trainer
