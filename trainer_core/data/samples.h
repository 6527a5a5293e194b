// Training sequences of S tokens made from a corpus, numbered and readable in any order. A sequence
// depends only on its number.
//
//   packed      documents are concatenated and cut every S tokens: sequence i has tokens [i S, (i +
//               1) S) as inputs, and the tokens one later as targets. All tokens are used except
//               those after the last whole sequence; there is no padding, and no pass over the
//               corpus to find where a sequence begins. A document that is cut continues in the
//               next sequence as if it began there; one longer than S fills sequences of its own.
//   documents   one document per sequence: its first S + 1 tokens, or all of them and padding of
//               weight 0.
//
// A target that is the first token of another document has weight 0. (First-fit and best-fit
// packing, the other common policies, keep documents whole, but truncate documents longer than S,
// pad, and must read all lengths first. Grain offers them beside this one, which it calls
// concat_then_split.)
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <absl/status/statusor.h>

#include "trainer_core/data/corpus.h"

namespace muster::trainer {

// The destination of sequences, (sequences, S) each.
struct SequenceSpans {
  std::span<int32_t> tokens;
  std::span<int32_t> targets;
  // For packed sequences, otherwise empty: the index within the sequence at which the token's
  // document begins. The token's position is its distance from there, and it attends to nothing
  // before.
  std::span<int32_t> starts;
  std::span<float> weights;

  SequenceSpans sequence(size_t number, size_t length) const {
    const size_t at = number * length;
    return {tokens.subspan(at, length), targets.subspan(at, length),
            starts.empty() ? starts : starts.subspan(at, length), weights.subspan(at, length)};
  }
};

// Not thread-safe: called on one thread only.
class Samples {
 public:
  enum class Kind { kPacked, kDocuments };
  static std::unique_ptr<Samples> make(Kind kind, Corpus corpus, int32_t seq_len);
  virtual ~Samples() = default;

  virtual uint64_t size() const = 0;
  // Reads sequence `number`. Requires: it is below size(), and `out` holds one sequence of S
  // tokens. Errors are ShardReader's.
  virtual absl::Status read(uint64_t number, const SequenceSpans& out) = 0;
};

}  // namespace muster::trainer
