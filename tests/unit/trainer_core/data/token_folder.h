// Writes data sets for tests, from documents that are lists of tokens.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "trainer_core/data/shard.h"
#include "trainer_core/data/token_index.h"

namespace muster::trainer {

constexpr int32_t kFolderVocab = 1000;
using Document = std::vector<int32_t>;

// Writes a data set with one shard for each list of documents.
inline void make_token_folder(const std::string& folder,
                              const std::vector<std::vector<Document>>& shards,
                              uint32_t vocab_size = kFolderVocab) {
  TokenIndex index;
  index.vocab_size = vocab_size;
  index.tokenizer_fingerprint = 7;
  for (const std::vector<Document>& documents : shards) {
    const std::string name = shard_file_name(index.shards.size());
    auto writer = ShardWriter::create(folder + "/" + name, vocab_size, 7);
    ASSERT_TRUE(writer.ok()) << writer.status();
    for (const Document& document : documents) {
      const auto size = static_cast<uint32_t>(document.size());
      ASSERT_TRUE((*writer)->append(document, {{size}}).ok());
    }
    const auto header = (*writer)->finish();
    ASSERT_TRUE(header.ok()) << header.status();
    index.shards.push_back({name, header->token_count, header->document_count});
    index.tokens += header->token_count;
    index.documents += header->document_count;
  }
  ASSERT_TRUE(write_token_index(folder, index).ok());
}

// Returns documents of 1 to `longest` tokens. The tokens count up over all documents, so that each
// token identifies its position.
inline std::vector<Document> counting_documents(size_t count, uint32_t longest, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<Document> documents(count);
  int32_t next = 0;
  for (Document& document : documents) {
    document.resize(1 + random() % longest);
    for (int32_t& token : document) token = next++ % kFolderVocab;
  }
  return documents;
}

// Divides documents into shards of `counts` documents each; an additional last shard has the rest.
inline std::vector<std::vector<Document>> into_shards(const std::vector<Document>& documents,
                                                      const std::vector<size_t>& counts) {
  std::vector<std::vector<Document>> shards;
  auto next = documents.begin();
  for (const size_t count : counts) {
    shards.emplace_back(next, next + static_cast<ptrdiff_t>(count));
    next += static_cast<ptrdiff_t>(count);
  }
  shards.emplace_back(next, documents.end());
  return shards;
}

}  // namespace muster::trainer
