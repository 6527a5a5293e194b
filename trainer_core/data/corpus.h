// A corpus is a sequence of complete documents of a data set: all documents, or those of one side
// of a split. Its tokens and documents are numbered from 0.
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

// A sequence of document runs. Immutable and thread-safe.
class Corpus {
 public:
  // Makes a corpus of all documents.
  explicit Corpus(std::shared_ptr<const TokenDataset> dataset);
  // Makes a corpus of the documents of `runs`. Requires that the runs ascend and that none is
  // empty.
  Corpus(std::shared_ptr<const TokenDataset> dataset, std::vector<DocumentRun> runs);

  const TokenDataset& dataset() const { return *dataset_; }
  const std::vector<DocumentRun>& runs() const { return runs_; }
  uint64_t tokens() const { return first_tokens_.back(); }
  uint64_t documents() const { return first_documents_.back(); }

  // Reads tokens [position, position + out.size()). Requires that they exist.
  absl::Status read(uint64_t position, std::span<int32_t> out) const;
  // Reads the weights of tokens [position, position + out.size()). Requires that they exist.
  absl::Status read_weights(uint64_t position, std::span<float> out) const;
  // Stores in `ends`, in ascending order, each e in (0, length] such that token position + e - 1 is
  // the last token of a document. Requires that tokens [position, position + length) exist.
  absl::Status document_ends(uint64_t position, uint64_t length, std::vector<uint64_t>& ends) const;
  // Returns the positions of the tokens of document `number`. Requires number < documents().
  absl::StatusOr<TokenDataset::TokenRange> document(uint64_t number) const;

 private:
  void add_up();
  template <class T, class Read>
  absl::Status read_parts(uint64_t position, std::span<T> out, const Read& read) const;

  std::shared_ptr<const TokenDataset> dataset_;
  std::vector<DocumentRun> runs_;
  std::vector<uint64_t> first_tokens_;     // position of each run in the corpus; then the total
  std::vector<uint64_t> first_documents_;  // the same for documents
};

// The documents of a data set in two parts. The data set is divided into kSplitStretches stretches
// with equal numbers of tokens. A run of complete documents from each stretch goes to `eval`; it
// has about `fraction` of the stretch's tokens and begins at a position that is drawn from the
// seed. So `eval` samples the whole data set, and at most kSplitStretches runs describe it,
// whatever the size of the data set.
struct CorpusSplit {
  Corpus train;
  Corpus eval;
};
constexpr uint64_t kSplitStretches = 64;
// Splits a data set. Requires that `fraction` is in [0, 1). Either part may be empty.
absl::StatusOr<CorpusSplit> split_corpus(const std::shared_ptr<const TokenDataset>& dataset,
                                         double fraction, uint64_t seed);

}  // namespace muster::trainer
