// Whole documents of a data set in sequence: all of them, or one side of a split. Tokens and
// documents are numbered from 0 within the corpus.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <absl/status/statusor.h>

#include "trainer_core/data/token_dataset.h"

namespace muster::trainer {

// Consecutive documents of a data set.
struct DocumentRun {
  uint64_t first_document = 0;
  uint64_t documents = 0;
  uint64_t first_token = 0;
  uint64_t tokens = 0;
};

// Immutable and thread-safe.
class Corpus {
 public:
  // All documents.
  explicit Corpus(std::shared_ptr<const TokenDataset> dataset);
  // The documents of `runs`. Requires: runs are in order and not empty.
  Corpus(std::shared_ptr<const TokenDataset> dataset, std::vector<DocumentRun> runs);

  const TokenDataset& dataset() const { return *dataset_; }
  const std::vector<DocumentRun>& runs() const { return runs_; }
  uint64_t tokens() const { return first_tokens_.back(); }
  uint64_t documents() const { return first_documents_.back(); }

  // Reads tokens [position, position + out.size()). Requires: they exist.
  absl::Status read(uint64_t position, std::span<int32_t> out) const;
  // Stores in `ends`, in ascending order, each e in (0, length] such that a document ends before
  // token position + e. Requires: tokens [position, position + length) exist.
  absl::Status document_ends(uint64_t position, uint64_t length, std::vector<uint64_t>& ends) const;
  // Returns the tokens of document `number`. Requires: it exists.
  absl::StatusOr<TokenDataset::TokenRange> document(uint64_t number) const;

 private:
  void add_up();

  std::shared_ptr<const TokenDataset> dataset_;
  std::vector<DocumentRun> runs_;
  std::vector<uint64_t> first_tokens_;     // of each run, in the corpus; then the total
  std::vector<uint64_t> first_documents_;  // likewise
};

// A data set's documents in two parts. The corpus is divided into kSplitStretches stretches of
// equal numbers of tokens. From each stretch a run of whole documents with about `fraction` of its
// tokens, at a position drawn from the seed, goes to `eval`. So eval samples the whole corpus, and
// a few numbers describe it whatever the corpus's size.
struct CorpusSplit {
  Corpus train;
  Corpus eval;
};
constexpr uint64_t kSplitStretches = 64;
// Requires: `fraction` is in [0, 1). Either part may be empty.
absl::StatusOr<CorpusSplit> split_corpus(const std::shared_ptr<const TokenDataset>& dataset,
                                         double fraction, uint64_t seed);

}  // namespace muster::trainer
