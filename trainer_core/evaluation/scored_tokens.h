// Token sequences of which the last tokens are scored: the model computes the log-probability of
// each scored token, given the tokens before it. The rules are those of lm-evaluation-harness.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/statusor.h>

#include "trainer_core/data/tokenizer.h"

namespace muster::trainer {

// A sequence. 1 <= scored < tokens.size().
struct ScoredTokens {
  std::vector<int32_t> tokens;
  int32_t scored = 0;  // number of tokens at the end that are scored

  // Returns the number of tokens that the model reads: all but the last.
  size_t inputs() const { return tokens.size() - 1; }

  friend bool operator==(const ScoredTokens&, const ScoredTokens&) = default;
};

// How texts become sequences.
struct ScoringOptions {
  int32_t seq_len = 0;  // the maximum number of tokens that the model reads
  // Whether a longer sequence loses its first tokens. If not, it is an error.
  bool truncate = false;
  // The token before texts without a context, and before all others if add_bos is set. Must be a
  // token of the vocabulary.
  int32_t bos_id = 0;
  bool add_bos = false;
};

// Encodes texts. `tokenizer` must outlive it. Called on one thread only.
class ScoredTokenEncoder {
 public:
  ScoredTokenEncoder(const Tokenizer& tokenizer, const ScoringOptions& options)
      : tokenizer_(tokenizer), options_(options) {}

  // Scores each of `continuations` after `context`. Blanks at the end of the context belong to the
  // continuation. The tokens of a sequence are those of the context alone, and then those of the
  // whole text after as many tokens: the two texts differ where a token crosses their boundary.
  // Returns InvalidArgument if a continuation has no token of its own, or if a sequence is too
  // long.
  absl::StatusOr<std::vector<ScoredTokens>> continuations(
      std::string_view context, std::span<const std::string> continuations) const;
  // Scores every token of `text` once, in windows of seq_len tokens. A token is scored given the
  // tokens of its window; the last window begins earlier if it would be shorter. Returns no window
  // for an empty text.
  absl::StatusOr<std::vector<ScoredTokens>> rolling(std::string_view text) const;

 private:
  // Encodes a text that is not a continuation.
  absl::StatusOr<std::vector<int32_t>> encode(std::string_view text) const;
  absl::StatusOr<ScoredTokens> first_text(std::string_view text) const;
  // `before`: the tokens of the context without the blanks at its end.
  absl::StatusOr<ScoredTokens> later_text(const std::vector<int32_t>& before,
                                          std::string_view whole) const;
  absl::StatusOr<ScoredTokens> fitted(ScoredTokens sequence) const;

  const Tokenizer& tokenizer_;
  ScoringOptions options_;
};

// Returns the number of bytes of white space at the end of `text`, as Python's rstrip().
size_t trailing_space(std::string_view text);

}  // namespace muster::trainer
