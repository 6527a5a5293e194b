#include "trainer_core/data/corpus.h"

#include <cmath>
#include <numeric>
#include <set>

#include <gtest/gtest.h>

#include "tests/unit/temp_folder.h"
#include "tests/unit/trainer_core/data/token_folder.h"

namespace muster::trainer {
namespace {

std::shared_ptr<const TokenDataset> open(const std::string& folder) {
  auto dataset = TokenDataset::open(folder, kFolderVocab);
  EXPECT_TRUE(dataset.ok()) << dataset.status();
  return *std::move(dataset);
}

std::vector<Document> documents_of(const Corpus& corpus) {
  std::vector<Document> documents;
  for (uint64_t i = 0; i < corpus.documents(); ++i) {
    const auto range = corpus.document(i);
    EXPECT_TRUE(range.ok()) << range.status();
    Document document(range->end - range->begin);
    EXPECT_TRUE(corpus.read(range->begin, document).ok());
    documents.push_back(std::move(document));
  }
  return documents;
}

// Compares every stretch of a corpus with the same documents in one vector.
void expect_reads_as(const Corpus& corpus, const std::vector<Document>& documents) {
  ASSERT_EQ(documents_of(corpus), documents);
  Document all;
  std::vector<uint64_t> all_ends;
  for (const Document& document : documents) {
    all.insert(all.end(), document.begin(), document.end());
    all_ends.push_back(all.size());
  }
  ASSERT_EQ(corpus.tokens(), all.size());
  for (uint64_t from = 0; from < all.size(); ++from) {
    for (uint64_t length = 1; length <= std::min<uint64_t>(40, all.size() - from); length += 13) {
      Document tokens(length);
      ASSERT_TRUE(corpus.read(from, tokens).ok());
      ASSERT_TRUE(std::equal(tokens.begin(), tokens.end(), all.begin() + from));
      std::vector<uint64_t> ends, expected;
      for (const uint64_t end : all_ends)
        if (end > from && end <= from + length) expected.push_back(end - from);
      ASSERT_TRUE(corpus.document_ends(from, length, ends).ok());
      ASSERT_EQ(ends, expected) << from << " + " << length;
    }
  }
}

TEST(Corpus, IsTheConcatenationOfItsShards) {
  TempFolder folder;
  const auto documents = counting_documents(60, 25, 1);
  make_token_folder(folder.path(), into_shards(documents, {10, 0, 1, 30, 0}));
  expect_reads_as(Corpus(open(folder.path())), documents);
}

// Opening checks only headers: a table of decreasing ends is detected where it is read.
TEST(Corpus, DocumentsOutOfOrderAreNamed) {
  TempFolder folder;
  make_token_folder(folder.path(), {{Document(10, 1), Document(10, 2), Document(10, 3)}});
  const std::string path = folder.file(shard_file_name(0));
  std::string bytes = read_file(path);
  const uint64_t ends[] = {28, 5, 30};  // the second shard begins at 28
  const std::string table(reinterpret_cast<const char*>(ends), sizeof(ends));
  bytes.replace(bytes.size() - table.size(), table.size(), table);
  write_file(path, bytes);
  const Corpus corpus(open(folder.path()));
  std::vector<uint64_t> found;
  EXPECT_EQ(corpus.document_ends(0, 30, found).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(corpus.document(1).status().code(), absl::StatusCode::kDataLoss);
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const auto split = split_corpus(open(folder.path()), 0.4, seed);
    if (!split.ok()) continue;
    EXPECT_LE(split->train.tokens() + split->eval.tokens(), 30U);
  }
}

TEST(Corpus, ASplitDividesTheDocumentsForEveryFractionAndSeed) {
  TempFolder folder;
  const auto documents = counting_documents(300, 12, 2);
  make_token_folder(folder.path(), into_shards(documents, {100, 7}));
  const auto dataset = open(folder.path());
  std::set<std::vector<Document>> held_out;
  for (const double fraction : {0.0, 0.01, 0.1, 0.5, 0.99}) {
    for (const uint64_t seed : {0, 1, 2}) {
      const auto split = split_corpus(dataset, fraction, seed);
      ASSERT_TRUE(split.ok()) << split.status();
      const std::vector<Document> train = documents_of(split->train),
                                  eval = documents_of(split->eval);
      // Together the runs have all documents, each once.
      std::vector<std::pair<uint64_t, uint64_t>> runs;
      for (const Corpus* part : {&split->train, &split->eval})
        for (const DocumentRun& run : part->runs())
          runs.emplace_back(run.first_document, run.documents);
      std::ranges::sort(runs);
      uint64_t next = 0;
      for (const auto& [first, count] : runs) {
        ASSERT_EQ(first, next);
        next += count;
      }
      ASSERT_EQ(next, documents.size());
      ASSERT_EQ(train.size() + eval.size(), documents.size());
      EXPECT_EQ(eval.empty(), fraction == 0);
      if (fraction == 0.1 || fraction == 0.5) {
        const double share =
            static_cast<double>(split->eval.tokens()) / static_cast<double>(dataset->tokens());
        EXPECT_NEAR(share, fraction, 0.05);
        EXPECT_TRUE(held_out.insert(eval).second) << "seeds hold out the same";
        EXPECT_LT(split->eval.runs().front().first_document, 50U);
        EXPECT_GT(split->eval.runs().back().first_document, 250U);
      }
    }
  }
  const auto split = split_corpus(dataset, 0.1, 5);
  ASSERT_TRUE(split.ok());
  expect_reads_as(split->train, documents_of(split->train));
  expect_reads_as(split->eval, documents_of(split->eval));
}

TEST(Corpus, ASplitOfFewDocumentsMayLeaveASideEmpty) {
  TempFolder folder;
  make_token_folder(folder.path(), {{Document(500, 1)}});
  const auto split = split_corpus(open(folder.path()), 0.01, 0);
  ASSERT_TRUE(split.ok()) << split.status();
  EXPECT_EQ(split->train.documents() + split->eval.documents(), 1U);
}

}  // namespace
}  // namespace muster::trainer
