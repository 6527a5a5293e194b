// A source of batches for a rank that computes only some positions of its sequences.
#pragma once

#include <memory>

#include "trainer_core/data/batches.h"
#include "trainer_core/ops/token_rows.h"

namespace muster::trainer {

// The positions of a sequence that a rank reads.
struct SequenceParts {
  Positions tokens;  // positions of tokens, targets and weights
  // Positions of starts, for packed sequences. Attention needs the starts of more positions than
  // the rank has tokens.
  Positions starts;
};

// Returns a source that reads complete sequences of `seq_len` tokens from `sequences`, one after
// the other, and copies the positions `parts` from them. Requires that the spans of fill() have as
// many elements per sequence as `parts` has positions.
std::unique_ptr<BatchSource> positions_of(std::unique_ptr<BatchSource> sequences, int32_t seq_len,
                                          const SequenceParts& parts);

}  // namespace muster::trainer
