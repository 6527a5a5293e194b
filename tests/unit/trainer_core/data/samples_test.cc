#include "trainer_core/data/samples.h"

#include <gtest/gtest.h>

#include "tests/unit/temp_folder.h"
#include "tests/unit/trainer_core/data/token_folder.h"

namespace muster::trainer {
namespace {

constexpr size_t kSequenceLength = 16;

struct Sequence {
  std::vector<int32_t> tokens = std::vector<int32_t>(kSequenceLength, -1);
  std::vector<int32_t> targets = std::vector<int32_t>(kSequenceLength, -1);
  std::vector<int32_t> starts = std::vector<int32_t>(kSequenceLength, -1);
  std::vector<float> weights = std::vector<float>(kSequenceLength, -1);

  SequenceSpans spans() { return {tokens, targets, starts, weights}; }
};

class SamplesTest : public testing::Test {
 protected:
  void make(const std::vector<std::vector<Document>>& shards, Samples::Kind kind) {
    make_token_folder(folder_.path(), shards);
    auto dataset = TokenDataset::open(folder_.path(), kFolderVocab);
    ASSERT_TRUE(dataset.ok()) << dataset.status();
    samples_ = Samples::make(kind, Corpus(*std::move(dataset)), kSequenceLength);
  }
  Sequence read(uint64_t number) {
    Sequence sequence;
    EXPECT_TRUE(samples_->read(number, sequence.spans()).ok());
    return sequence;
  }

  TempFolder folder_;
  std::unique_ptr<Samples> samples_;
};

// Each token encodes its document and position, counted from the beginning of the corpus.
TEST_F(SamplesTest, PackedSequencesKeepDocumentsApart) {
  const auto documents = counting_documents(80, 40, 3);
  make(into_shards(documents, {20, 1}), Samples::Kind::kPacked);
  struct Place {
    int32_t token;
    size_t document;
  };
  std::vector<Place> all;
  for (size_t d = 0; d < documents.size(); ++d)
    for (const int32_t token : documents[d]) all.push_back({token, d});
  ASSERT_EQ(samples_->size(), (all.size() - 1) / kSequenceLength);
  for (const uint64_t number : {samples_->size() - 1, uint64_t{0}}) read(number);  // in any order
  for (uint64_t number = 0; number < samples_->size(); ++number) {
    const Sequence sequence = read(number);
    const size_t begin = number * kSequenceLength;
    for (size_t i = 0; i < kSequenceLength; ++i) {
      const Place &here = all[begin + i], &next = all[begin + i + 1];
      ASSERT_EQ(sequence.tokens[i], here.token);
      ASSERT_EQ(sequence.targets[i], next.token);
      ASSERT_EQ(sequence.weights[i], here.document == next.document ? 1 : 0);
      const auto start = static_cast<size_t>(sequence.starts[i]);
      ASSERT_LE(start, i);
      ASSERT_EQ(all[begin + start].document, here.document);
      ASSERT_TRUE(start == 0 || all[begin + start - 1].document != here.document);
    }
  }
}

TEST_F(SamplesTest, ADocumentIsTruncatedOrPadded) {
  const std::vector<Document> documents = {Document(3, 5), Document(kSequenceLength, 6),
                                           Document(kSequenceLength + 1, 7), Document(40, 8),
                                           Document(1, 9)};
  make({documents}, Samples::Kind::kDocuments);
  ASSERT_EQ(samples_->size(), documents.size());
  for (size_t d = 0; d < documents.size(); ++d) {
    const Sequence sequence = read(d);
    for (size_t i = 0; i < kSequenceLength; ++i) {
      const bool has_token = i < documents[d].size(), has_target = i + 1 < documents[d].size();
      ASSERT_EQ(sequence.tokens[i], has_token ? documents[d][i] : 0);
      ASSERT_EQ(sequence.targets[i], has_target ? documents[d][i + 1] : 0);
      ASSERT_EQ(sequence.weights[i], has_target ? 1 : 0);
    }
  }
}

TEST_F(SamplesTest, IsEmptyWithoutTokens) {
  make({{}}, Samples::Kind::kPacked);
  EXPECT_EQ(samples_->size(), 0U);
}

}  // namespace
}  // namespace muster::trainer
