#include "trainer_core/data/token_index.h"

#include <gmock/gmock.h>

#include <gtest/gtest.h>

#include "tests/unit/mutate.h"
#include "tests/unit/temp_folder.h"

namespace muster::trainer {
namespace {

using testing::HasSubstr;

TokenIndex sample() {
  TokenIndex index;
  index.vocab_size = 4096;
  index.tokenizer_fingerprint = 0xFEDCBA9876543210ULL;
  index.tokens = 30;
  index.documents = 3;
  index.bytes = 120;
  index.unigram_entropy_nats = 5.25;
  index.shards = {{"shard-00000.mtok", 20, 2}, {"shard-00001.mtok", 10, 1}};
  return index;
}

TEST(TokenIndex, RoundTrips) {
  TempFolder folder;
  ASSERT_TRUE(write_token_index(folder.path(), sample()).ok());
  auto index = read_token_index(folder.path());
  ASSERT_TRUE(index.ok()) << index.status();
  EXPECT_EQ(index->vocab_size, 4096U);
  EXPECT_EQ(index->tokenizer_fingerprint, 0xFEDCBA9876543210ULL);
  EXPECT_EQ(index->unigram_entropy_nats, 5.25);
  ASSERT_EQ(index->shards.size(), 2U);
  EXPECT_EQ(index->shards[1].file, "shard-00001.mtok");
  EXPECT_EQ(index->shards[1].tokens, 10U);
}

TEST(TokenIndex, AMissingIndexExplainsHowToMakeIt) {
  TempFolder folder;
  const auto status = read_token_index(folder.path()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("`muster tokenize --text INPUT.txt --tokenizer MODEL.model --out"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("muster tokenize"));
}

TEST(TokenIndex, DamageIsAnErrorAndNotACrash) {
  TempFolder folder;
  ASSERT_TRUE(write_token_index(folder.path(), sample()).ok());
  const std::string good = read_file(folder.file(kTokenIndexFile));
  for (size_t length = 0; length + 2 < good.size(); ++length) {
    write_file(folder.file(kTokenIndexFile), good.substr(0, length));
    EXPECT_EQ(read_token_index(folder.path()).status().code(), absl::StatusCode::kDataLoss);
  }
  for (size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 0x15);
    write_file(folder.file(kTokenIndexFile), bad);
    (void)read_token_index(folder.path());
  }
}

// Values in messages are printed recursively.
TEST(TokenIndex, DepthIsBounded) {
  const TempFolder folder;
  constexpr size_t kDepth = 1 << 20;
  const std::string deep = std::string(kDepth, '[') + std::string(kDepth, ']');
  write_file(folder.file(kTokenIndexFile),
             R"({"format": "muster-tokens", "version": )" + deep + "}");
  const absl::Status status = read_token_index(folder.path()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("index.json nests values more than"));
}

TEST(TokenIndex, AShardOutsideTheFolderIsRefused) {
  TempFolder folder;
  for (const char* name : {"../secret", "/etc/passwd", "..", ""}) {
    TokenIndex index = sample();
    index.shards[0].file = name;
    ASSERT_TRUE(write_token_index(folder.path(), index).ok());
    EXPECT_EQ(read_token_index(folder.path()).status().code(), absl::StatusCode::kDataLoss) << name;
  }
}

TEST(TokenIndex, MutationsAreRefusedOrNameFilesOfTheFolder) {
  TempFolder folder;
  ASSERT_TRUE(write_token_index(folder.path(), sample()).ok());
  const std::string good = read_file(folder.file(kTokenIndexFile));
  Mutator mutator(3);
  int accepted = 0;
  for (int i = 0; i < 2000; ++i) {
    write_file(folder.file(kTokenIndexFile), mutator.mutate(good));
    const auto index = read_token_index(folder.path());
    if (!index.ok()) {
      ASSERT_EQ(index.status().code(), absl::StatusCode::kDataLoss) << index.status();
      continue;
    }
    ++accepted;
    ASSERT_FALSE(index->shards.empty());
    uint64_t tokens = 0;
    for (const TokenIndex::Shard& shard : index->shards) {
      ASSERT_EQ(shard.file.find('/'), std::string::npos);
      tokens += shard.tokens;
    }
    ASSERT_EQ(index->tokens, tokens);
  }
  EXPECT_GT(accepted, 50);
}

}  // namespace
}  // namespace muster::trainer
