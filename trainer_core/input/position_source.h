// Batches of a rank that has some positions of its sequences.
#pragma once

#include <memory>

#include "trainer_core/data/batches.h"
#include "trainer_core/ops/token_rows.h"

namespace muster::trainer {

// What a rank takes of sequences of S tokens.
struct SequenceParts {
  Positions tokens;  // of tokens, targets and weights
  Positions starts;  // of starts, which attention needs of more positions; in packed sequences
};

// Reads whole sequences of `sequences`, whose length is `seq_len`, one after another, and hands out these parts. Spans of fill() have
// as many numbers a sequence as the parts say.
std::unique_ptr<BatchSource> positions_of(std::unique_ptr<BatchSource> sequences, int32_t seq_len,
                                          const SequenceParts& parts);

}  // namespace muster::trainer
