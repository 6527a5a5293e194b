#include "trainer_core/data/sft_samples.h"

#include <gmock/gmock.h>

#include <fstream>
#include <numeric>

#include <gtest/gtest.h>

#include "tests/unit/temp_folder.h"
#include "trainer_core/data/token_index.h"

namespace muster::trainer {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr int32_t kSftLength = 8;
constexpr uint32_t kSftVocab = 1000;

// A sample's tokens are 100 d + i; its first `prompt` tokens have the weight 0, others `weight`.
struct TestSample {
  uint32_t tokens;
  uint32_t prompt;
  float weight = 1;
};

// Writes the samples as a data set of shards with at most three samples each.
void write_samples(const std::string& folder, const std::vector<TestSample>& samples) {
  TokenIndex index;
  index.vocab_size = kSftVocab;
  for (size_t first = 0; first < samples.size(); first += 3) {
    const std::string name = shard_file_name(index.shards.size());
    auto writer = ShardWriter::create(folder + "/" + name, kSftVocab, 0, /*has_weights=*/true);
    ASSERT_TRUE(writer.ok()) << writer.status();
    for (size_t d = first; d < std::min(first + 3, samples.size()); ++d) {
      std::vector<int32_t> tokens(samples[d].tokens);
      std::iota(tokens.begin(), tokens.end(), static_cast<int32_t>(100 * d));
      std::vector<float> weights(tokens.size(), samples[d].weight);
      std::fill_n(weights.begin(), samples[d].prompt, 0.0F);
      const uint32_t documents[] = {samples[d].tokens};
      ASSERT_TRUE((*writer)->append(tokens, documents, weights).ok());
    }
    const auto header = (*writer)->finish();
    ASSERT_TRUE(header.ok()) << header.status();
    index.shards.push_back({name, header->token_count, header->document_count});
    index.tokens += header->token_count;
    index.documents += header->document_count;
  }
  ASSERT_TRUE(write_token_index(folder, index).ok());
}

class SftSamplesTest : public testing::Test {
 protected:
  struct Read {
    std::vector<int32_t> tokens = std::vector<int32_t>(kSftLength, -1);
    std::vector<int32_t> targets = tokens;
    std::vector<int32_t> starts = tokens;
    std::vector<float> weights = std::vector<float>(kSftLength, -1);
  };

  void make(const std::vector<TestSample>& samples, const SftOptions& options = {}) {
    write_samples(folder_.path(), samples);
    auto dataset = TokenDataset::open(folder_.path(), kSftVocab);
    ASSERT_TRUE(dataset.ok()) << dataset.status();
    EXPECT_TRUE((*dataset)->has_weights());
    EXPECT_TRUE((*dataset)->verify_shards().ok());
    auto made = make_sft_samples(Corpus(*std::move(dataset)), kSftLength, options);
    ASSERT_TRUE(made.ok()) << made.status();
    made_ = *std::move(made);
  }

  Read read(uint64_t number, bool packed = true) {
    Read out;
    if (!packed) out.starts.clear();
    const auto status =
        made_.samples->read(number, {out.tokens, out.targets, out.starts, out.weights});
    EXPECT_TRUE(status.ok()) << status;
    return out;
  }

  TempFolder folder_;
  SftSamples made_;
};

TEST_F(SftSamplesTest, PacksCompleteSamples) {
  // Positions: 3, 5, 8, 2 and 4. Best-fit decreasing: {8}, {5, 3}, {4, 2}.
  make({{4, 2}, {6, 1}, {9, 3}, {3, 1, 0.5F}, {5, 4}});
  ASSERT_EQ(made_.samples->size(), 3U);
  EXPECT_EQ(made_.counts.positions, 22U);
  const Read first = read(0);
  EXPECT_THAT(first.tokens, ElementsAre(0, 1, 2, 100, 101, 102, 103, 104));
  EXPECT_THAT(first.targets, ElementsAre(1, 2, 3, 101, 102, 103, 104, 105));
  EXPECT_THAT(first.starts, ElementsAre(0, 0, 0, 3, 3, 3, 3, 3));
  EXPECT_THAT(first.weights, ElementsAre(0, 1, 1, 1, 1, 1, 1, 1));
  EXPECT_THAT(read(1).tokens, ElementsAre(200, 201, 202, 203, 204, 205, 206, 207));
  EXPECT_THAT(read(1).weights, ElementsAre(0, 0, 1, 1, 1, 1, 1, 1));
  const Read last = read(2);
  EXPECT_THAT(last.tokens, ElementsAre(300, 301, 400, 401, 402, 403, 0, 0));
  EXPECT_THAT(last.starts, ElementsAre(0, 0, 2, 2, 2, 2, 6, 6)) << "padding attends to itself";
  EXPECT_THAT(last.weights, ElementsAre(0.5F, 0.5F, 0, 0, 0, 1, 0, 0));
}

TEST_F(SftSamplesTest, TruncatesOrDropsLongSamplesAndCountsThem) {
  // The completion of the second sample begins behind the sequence.
  const std::vector<TestSample> samples = {{20, 4}, {20, 9}, {4, 1}};
  make(samples);
  EXPECT_EQ(made_.counts.samples, 3U);
  EXPECT_EQ(made_.counts.too_long, 2U);
  EXPECT_EQ(made_.counts.unlearned, 1U);
  ASSERT_EQ(made_.samples->size(), 2U);
  EXPECT_THAT(read(0).targets, ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
  EXPECT_THAT(read(0).weights, ElementsAre(0, 0, 0, 1, 1, 1, 1, 1));
  make(samples, {.completion_only = false});
  EXPECT_EQ(made_.counts.unlearned, 0U);
  EXPECT_THAT(read(1).weights, Each(1));
  make(samples, {.drops_long = true});
  EXPECT_EQ(made_.counts.too_long, 2U);
  ASSERT_EQ(made_.samples->size(), 1U);
  EXPECT_THAT(read(0).tokens, ElementsAre(200, 201, 202, 0, 0, 0, 0, 0));
}

TEST_F(SftSamplesTest, AveragesSamples) {
  make({{3, 1, 2}, {6, 2}}, {.packs = false, .averages_samples = true});
  ASSERT_EQ(made_.samples->size(), 2U);
  EXPECT_THAT(read(0, false).weights, ElementsAre(1, 1, 0, 0, 0, 0, 0, 0)) << "the weight 2";
  EXPECT_THAT(read(1, false).weights, ElementsAre(0, 0.25F, 0.25F, 0.25F, 0.25F, 0, 0, 0));
}

TEST_F(SftSamplesTest, ADamagedWeightIsNamed) {
  make({{4, 1}, {6, 1}});
  std::fstream file(folder_.file("shard-00000.mtok"),
                    std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(64 + 24 + 16 + 5);  // behind the header, ten tokens of two bytes, padding, two ends
  file.put('\x7F');
  file.close();
  auto dataset = TokenDataset::open(folder_.path(), kSftVocab);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  std::vector<float> weights(10);
  const auto status = (*dataset)->read_weights(0, weights);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("is damaged: the checksum of its bytes"));
}

}  // namespace
}  // namespace muster::trainer
