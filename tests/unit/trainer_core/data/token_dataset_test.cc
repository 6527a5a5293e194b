#include "trainer_core/data/token_dataset.h"

#include <gmock/gmock.h>

#include <filesystem>

#include <gtest/gtest.h>

#include "tests/unit/temp_folder.h"
#include "tests/unit/trainer_core/data/token_folder.h"

namespace muster::trainer {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(TokenDataset, ALargerVocabularyThanTheModelsIsBadInput) {
  TempFolder folder;
  make_token_folder(folder.path(), {{Document(100, 1)}});
  const auto status = TokenDataset::open(folder.path(), 512).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("vocab_size=512"));
  EXPECT_TRUE(TokenDataset::open(folder.path(), kFolderVocab).ok());
  EXPECT_TRUE(TokenDataset::open(folder.path(), 1024).ok()) << "padded";
}

TEST(TokenDataset, AShardThatDisagreesWithTheIndexIsRefused) {
  TempFolder folder;
  make_token_folder(folder.path(),
                    {{Document(100, 1)}, {Document(200, 1)}, {Document(100, 1), Document(100, 2)}});
  const auto replace = [&](const char* with) {
    std::filesystem::copy_file(folder.file(with), folder.file("shard-00001.mtok"),
                               std::filesystem::copy_options::overwrite_existing);
    const auto status = TokenDataset::open(folder.path(), kFolderVocab).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    return std::string(status.message());
  };
  EXPECT_THAT(replace("shard-00000.mtok"), HasSubstr("shard-00001.mtok holds 100 tokens"));
  EXPECT_THAT(replace("shard-00002.mtok"), HasSubstr("shard-00001.mtok holds 2 documents"));
}

// After the page of the cut the kernel raises SIGBUS; within the page it returns zeros.
TEST(TokenDataset, AShardThatIsTruncatedWhileInUseIsNamed) {
  TempFolder folder;
  constexpr uint64_t kTokens = 100'000;
  make_token_folder(folder.path(), {{Document(kTokens, 1)}, {Document(kTokens, 2)}});
  const auto dataset = TokenDataset::open(folder.path(), kFolderVocab);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  std::vector<int32_t> tokens(10);
  ASSERT_TRUE((*dataset)->read(kTokens - 5, tokens).ok());
  EXPECT_EQ(tokens, (std::vector<int32_t>{1, 1, 1, 1, 1, 2, 2, 2, 2, 2}));
  std::filesystem::resize_file(folder.file("shard-00001.mtok"), 5000);
  for (int again = 0; again < 2; ++again) {
    const auto status = (*dataset)->read(2 * kTokens - 20, tokens);
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("shard-00001.mtok was cut off"), HasSubstr("it had ")));
    EXPECT_THAT(std::string((*dataset)->document(1).status().message()), HasSubstr("was cut off"));
    EXPECT_THAT(std::string((*dataset)->verify_shards().message()), HasSubstr("was cut off"));
  }
  EXPECT_THAT(std::string((*dataset)->read(kTokens + 2500, tokens).message()),
              HasSubstr("shard-00001.mtok was written to while it is in use"));
  EXPECT_TRUE((*dataset)->read(0, tokens).ok()) << "the other shard is as it was";
}

TEST(TokenDataset, AShardMayBeReplacedOrRemovedButNotWrittenTo) {
  TempFolder folder;
  make_token_folder(folder.path(), {{Document(100, 1)}});
  const auto dataset = TokenDataset::open(folder.path(), kFolderVocab);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  std::vector<int32_t> tokens(100);
  const std::string path = folder.file("shard-00000.mtok");
  std::string bytes = read_file(path);
  std::filesystem::rename(path, folder.file("old"));
  EXPECT_TRUE((*dataset)->read(0, tokens).ok());
  write_file(path, bytes);
  EXPECT_TRUE((*dataset)->read(0, tokens).ok());
  std::filesystem::rename(folder.file("old"), path);
  bytes[70] = 9;
  write_file(path, bytes);
  EXPECT_THAT(std::string((*dataset)->read(0, tokens).message()), HasSubstr("was written to"));
}

TEST(TokenDataset, FindsTheDocumentOfEveryToken) {
  TempFolder folder;
  const auto documents = counting_documents(200, 9, 8);
  make_token_folder(folder.path(), into_shards(documents, {0, 50, 1, 0, 70}));
  const auto dataset = TokenDataset::open(folder.path(), kFolderVocab);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  uint64_t token = 0;
  for (uint64_t d = 0; d < documents.size(); ++d) {
    const auto range = (*dataset)->document(d);
    ASSERT_TRUE(range.ok()) << range.status();
    ASSERT_EQ(range->begin, token);
    ASSERT_EQ(range->end, token + documents[d].size());
    for (; token < range->end; ++token) ASSERT_EQ(*(*dataset)->document_at(token), d);
  }
  EXPECT_EQ((*dataset)->tokens(), token);
}

}  // namespace
}  // namespace muster::trainer
