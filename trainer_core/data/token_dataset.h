// A folder of token shards, read as one sequence of documents. Documents and tokens are numbered
// from 0 over all shards.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "trainer_core/data/shard.h"
#include "trainer_core/data/token_index.h"

namespace muster::trainer {

// A data set. Immutable and thread-safe after open(), which reads only the headers of the shards.
class TokenDataset {
 public:
  // Opens a folder. Returns DataLoss, with the path and the offset, for a shard that is damaged or
  // disagrees with the index. Returns InvalidArgument if the vocabulary of the data set is larger
  // than `vocab_size`, the model's.
  static absl::StatusOr<std::unique_ptr<TokenDataset>> open(const std::string& folder,
                                                            int32_t vocab_size);

  const std::string& folder() const { return folder_; }
  const TokenIndex& index() const { return index_; }
  uint64_t tokens() const { return first_tokens_.back(); }
  uint64_t documents() const { return first_documents_.back(); }

  // Reads tokens [position, position + out.size()). Requires that they exist. Returns the errors of
  // ShardReader::read().
  absl::Status read(uint64_t position, std::span<int32_t> out) const;
  // Reads the weights of tokens [position, position + out.size()) (shard.h).
  absl::Status read_weights(uint64_t position, std::span<float> out) const;
  // Returns whether a shard has weights.
  bool has_weights() const;
  // Returns the number of the document that has token `position`, by a binary search in one shard.
  // Requires position < tokens().
  absl::StatusOr<uint64_t> document_at(uint64_t position) const;
  // The positions [begin, end) of a document's tokens.
  struct TokenRange {
    uint64_t begin = 0;
    uint64_t end = 0;
  };
  // Returns the tokens of document `number`. Requires number < documents().
  absl::StatusOr<TokenRange> document(uint64_t number) const;
  // Returns a line of checksums. Two data sets with the same tokens and documents in the same
  // shards have equal lines.
  std::string checksums() const;
  // Verifies every shard (ShardReader::verify_payload), which reads the complete data set.
  absl::Status verify_shards() const;

 private:
  TokenDataset() = default;

  template <class T, class Read>
  absl::Status read_parts(uint64_t position, std::span<T> out, const Read& read) const;

  std::string folder_;
  TokenIndex index_;
  std::vector<std::unique_ptr<ShardReader>> shards_;
  std::vector<uint64_t> first_tokens_;     // position of each shard's first token; then the total
  std::vector<uint64_t> first_documents_;  // the same for documents
};

}  // namespace muster::trainer
