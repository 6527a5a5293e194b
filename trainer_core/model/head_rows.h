// The chunks of rows for which the head computes logits: the logits of all rows at once would need
// too much memory.
#pragma once

#include <cstdint>

namespace muster::trainer {

// Returns the number of rows per chunk, so that a chunk has about `logits_bytes` bytes of fp32
// logits. There are `tokens` rows with `ids` logits each. The result is at least `batch`, the
// number of sequences.
int64_t head_rows(int64_t ids, int64_t tokens, int64_t batch, int64_t logits_bytes);

}  // namespace muster::trainer
