// Batches for a rank that computes only some positions of its sequences.
#pragma once

#include <memory>

#include "trainer_core/data/batches.h"
#include "trainer_core/ops/token_rows.h"

namespace muster::trainer {

// The positions of a sequence of S tokens that a rank reads.
struct SequenceParts {
  Positions tokens;  // of tokens, targets and weights
  // Positions of starts, in packed sequences: attention needs the starts of more positions.
  Positions starts;
};

// Returns a source that reads whole sequences of length `seq_len` from `sequences`, one after
// another, and copies out these parts. Requires: the spans passed to fill() hold as many elements
// per sequence as `parts` has positions.
std::unique_ptr<BatchSource> positions_of(std::unique_ptr<BatchSource> sequences, int32_t seq_len,
                                          const SequenceParts& parts);

}  // namespace muster::trainer
