// A folder of token shards as one concatenation of documents: their positions and their tokens.
// Documents and tokens are numbered from 0 over all shards.
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

// Immutable and thread-safe after open(), which reads only the shards' headers.
class TokenDataset {
 public:
  // DataLoss for a shard that is damaged or disagrees with the index (named, with the offset);
  // InvalidArgument if its vocabulary is larger than the model's `vocab_size`.
  static absl::StatusOr<std::unique_ptr<TokenDataset>> open(const std::string& folder,
                                                            int32_t vocab_size);

  const std::string& folder() const { return folder_; }
  const TokenIndex& index() const { return index_; }
  uint64_t tokens() const { return first_tokens_.back(); }
  uint64_t documents() const { return first_documents_.back(); }

  // Reads tokens [position, position + out.size()). Requires: they exist. Errors are
  // ShardReader::read's.
  absl::Status read(uint64_t position, std::span<int32_t> out) const;
  // Returns the document of token `position` by a binary search in one shard. Requires: it exists.
  absl::StatusOr<uint64_t> document_at(uint64_t position) const;
  // The tokens [begin, end) of a document.
  struct TokenRange {
    uint64_t begin = 0;
    uint64_t end = 0;
  };
  // Requires: document `number` exists.
  absl::StatusOr<TokenRange> document(uint64_t number) const;
  // Returns a line of checksums that is equal for the same tokens and documents in the same shards.
  std::string checksums() const;
  // Compares every payload's checksum. Reads the whole data set.
  absl::Status verify_payloads() const;

 private:
  TokenDataset() = default;

  std::string folder_;
  TokenIndex index_;
  std::vector<std::unique_ptr<ShardReader>> shards_;
  std::vector<uint64_t> first_tokens_;     // of each shard; then the total
  std::vector<uint64_t> first_documents_;  // likewise
};

}  // namespace muster::trainer
