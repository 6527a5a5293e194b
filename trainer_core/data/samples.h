// Training sequences of S tokens, made from a corpus in one of two ways. Sequences are numbered and
// can be read in any order; each depends only on its number.
//
//   packed      Documents are concatenated and cut every S tokens: sequence i has the tokens
//               [i S, (i + 1) S) as inputs and the tokens [i S + 1, (i + 1) S + 1) as targets. All
//               tokens are used except those after the last complete sequence. There is no padding,
//               and no pass over the corpus is needed to find a sequence. A document
//               that is cut continues in the next sequence as if it began there; a document longer
//               than S fills several sequences.
//   documents   Each sequence has one document: its first S + 1 tokens, or the complete document
//               followed by padding of weight 0.
//
// A target that is the first token of another document has weight 0. Grain calls the first way
// concat_then_split. First-fit and best-fit packing, the other common policies, do not cut
// documents of at most S tokens, but they truncate longer documents, need padding, and must read
// all lengths first.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <absl/status/statusor.h>

#include "trainer_core/data/corpus.h"

namespace muster::trainer {

// The destination of sequences. Each span has the shape (sequences, S).
struct SequenceSpans {
  std::span<int32_t> tokens;
  std::span<int32_t> targets;
  // For packed sequences only, otherwise empty: for each token, the index in the sequence at which
  // the token's document begins. The token's position is its distance from this index, and the
  // token attends to no token before it.
  std::span<int32_t> starts;
  std::span<float> weights;

  // Returns the spans of sequence `number`. Requires length = S.
  SequenceSpans sequence(size_t number, size_t length) const {
    const size_t at = number * length;
    return {tokens.subspan(at, length), targets.subspan(at, length),
            starts.empty() ? starts : starts.subspan(at, length), weights.subspan(at, length)};
  }
};

// A numbered set of sequences. Called on one thread only.
class Samples {
 public:
  enum class Kind { kPacked, kDocuments };
  static std::unique_ptr<Samples> make(Kind kind, Corpus corpus, int32_t seq_len);
  virtual ~Samples() = default;

  // Returns the number of sequences.
  virtual uint64_t size() const = 0;
  // Reads sequence `number`. Requires number < size(), and that `out` has room for one sequence.
  // Returns the errors of ShardReader::read().
  virtual absl::Status read(uint64_t number, const SequenceSpans& out) = 0;
};

}  // namespace muster::trainer
